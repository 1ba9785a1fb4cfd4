"""Share a study: `report(study, workspace, output)` writes one HTML page that opens with the network off.

The other names are the sections that the report's notebook calls, each a function of a study's log.
"""

from kernelevolve.report.build import report
from kernelevolve.report.environment import environment, headline_query, profile, provenance
from kernelevolve.report.headline import best_of, error_table, headline, timing_table
from kernelevolve.report.lineage import lineage
from kernelevolve.report.notebook import build_notebook
from kernelevolve.report.sections import overview, roofline, source_of, title

__all__ = [
    "best_of", "build_notebook", "environment", "error_table", "headline", "headline_query", "lineage", "overview",
    "profile", "provenance", "report", "roofline", "source_of", "timing_table", "title",
]
