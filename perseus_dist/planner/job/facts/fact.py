"""All facts, as one type."""

from perseus_dist.planner.job.facts.decisions import PaceChosen, StragglerKnown, SwitchDecided, TargetChosen
from perseus_dist.planner.job.facts.plans import StragglerPlanReady, TableAhead, TableMade
from perseus_dist.planner.job.facts.policies import BudgetSet, LoadTargetSet, PricePolicySet, PriceProgress
from perseus_dist.planner.job.facts.runs import (
    BaselineMeasured,
    FingerprintKnown,
    JobEnded,
    JobRegistered,
    SavingCounted,
    ScheduleReceived,
)
from perseus_dist.planner.job.facts.sweeps import SamplesReceived, SweepBegun, SweepEnded

Fact = (
    JobRegistered
    | FingerprintKnown
    | ScheduleReceived
    | BaselineMeasured
    | SavingCounted
    | SweepBegun
    | SweepEnded
    | SamplesReceived
    | TableMade
    | TableAhead
    | StragglerPlanReady
    | SwitchDecided
    | TargetChosen
    | PaceChosen
    | StragglerKnown
    | JobEnded
    | BudgetSet
    | LoadTargetSet
    | PricePolicySet
    | PriceProgress
)
