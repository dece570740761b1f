// The trace behind solve_frontier, as what traces to a tolerance use it.
#pragma once

#include <functional>
#include <vector>

#include "perseus/frontier.hpp"

namespace perseus {

// What becomes of samples instead of being kept: its spans are valid during the call. Returning false ends the trace.
using VisitSample = std::function<bool(const Sample& sample)>;

// Hands over the samples at extra_ps; the result has no vertices where the trace was ended. The problem is not checked.
FrontierResult trace_samples(const FrontierProblem& problem, std::span<const TimePs> extra_ps, const VisitSample& visit,
                             const Progress& progress);

// Durations of all instructions at their fastest, or at their cheapest.
std::vector<TimePs> extreme_durations(const FrontierProblem& problem, bool fastest);

// The time of the sampling grid after `index` of `num_steps` steps down from from_ps to t_min_ps: even steps, or steps that
// shrink towards t_min_ps as (1 - x)^1.5 does, because the frontier gets steeper.
TimePs grid_time(TimePs t_min_ps, TimePs from_ps, std::int32_t index, std::int32_t num_steps, bool shrinks);

}  // namespace perseus
