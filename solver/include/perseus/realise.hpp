// From the frontier's relaxed solutions to plans of real clocks that are on time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "perseus/frontier.hpp"
#include "perseus/replay.hpp"

namespace perseus {

struct RealisedPlan {
  Plan plan;
  Outcome outcome;
};

// Plans on the measured times, clock changes counted, ascending in time and falling in effective energy. The first one is no
// slower than the one at all-maximum clocks. `microbatch` (num_instructions) is used to join two plans between
// microbatches. `latency_ps` (num_clocks) as of Replay. At the times `wanted_ps` the search is longer. Returns nothing if progress cancels.
std::vector<RealisedPlan> realise(const Graph& graph, const Menu& menu, const FrontierResult& frontier,
                                  std::span<const std::int32_t> microbatch, PowerUw blocking_uw,
                                  std::span<const TimePs> latency_ps, std::span<const TimePs> wanted_ps,
                                  const Progress& progress = {});

}  // namespace perseus
