"""What happened: the journal (the truth), the artifacts (texts by content), the database (rebuilt from the journal).

A `Workspace` is a folder. A study in it is a list of journal records; tree, tables and views are folds over them.
"""

from kernelevolve.store.artifacts import Artifacts
from kernelevolve.store.database import Database
from kernelevolve.store.journal import Damage, JournalWriter, Record
from kernelevolve.store.log import Act, StudyLog
from kernelevolve.store.workspace import StudyWriter, Workspace

__all__ = [
    "Act",
    "Artifacts",
    "Damage",
    "Database",
    "JournalWriter",
    "Record",
    "StudyLog",
    "StudyWriter",
    "Workspace",
]
