"""See a study: in each file a data function (nodes to a DataFrame) and a figure function (DataFrame to plotly).

Each view has a third name that does both: `trajectory(nodes)`, `tree(nodes)`, `candidate_table(nodes)`,
`timing(result)`, `failures(nodes)`. Every figure carries a caption in `layout.meta.alt` which says in words
what it shows. Nothing here keeps state or draws by itself.
"""

from kernelevolve.views.failures import failures, failures_data, failures_figure, failures_table
from kernelevolve.views.frame import best, frame, ranked, ranked_nodes
from kernelevolve.views.html import Html
from kernelevolve.views.roofline import roofline_data, roofline_figure
from kernelevolve.views.table import candidate_table, table_data, table_html
from kernelevolve.views.timing import timing, timing_data, timing_figure
from kernelevolve.views.trajectory import trajectory, trajectory_data, trajectory_figure
from kernelevolve.views.tree import tree, tree_data, tree_figure

__all__ = [
    "Html", "best", "candidate_table", "failures", "failures_data", "failures_figure", "failures_table", "frame",
    "ranked", "ranked_nodes", "roofline_data", "roofline_figure", "table_data", "table_html", "timing", "timing_data",
    "timing_figure", "trajectory", "trajectory_data", "trajectory_figure", "tree", "tree_data", "tree_figure",
]
