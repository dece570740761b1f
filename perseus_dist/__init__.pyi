from perseus_dist.errors import ArgumentError, PerseusError
from perseus_dist.library.comparison import ComparedPlan, Comparison, compare
from perseus_dist.library.emulation import Emulation, StragglingJob, UndisturbedJob, emulate
from perseus_dist.library.frontier import Frontier
from perseus_dist.library.plan import Plan, PlannedInstruction
from perseus_dist.library.planning import load_frontier, plan
from perseus_dist.library.profile import Profile, read_profile
from perseus_dist.library.schedule import Schedule

__version__: str

__all__ = [
    "ArgumentError",
    "ComparedPlan",
    "Comparison",
    "Emulation",
    "Frontier",
    "PerseusError",
    "Plan",
    "PlannedInstruction",
    "Profile",
    "Schedule",
    "StragglingJob",
    "UndisturbedJob",
    "__version__",
    "compare",
    "emulate",
    "load_frontier",
    "plan",
    "read_profile",
]
