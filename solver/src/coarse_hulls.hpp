// Hulls with slopes that are multiples of one quantum, which make the flow one of equal units.
#pragma once

#include <vector>

#include "perseus/frontier.hpp"

namespace perseus {

struct CoarseHulls {
  std::vector<std::int32_t> hull_begin;  // (num_curves + 1)
  std::vector<TimePs> hull_ps;           // (num_coarse_vertices)
  std::vector<PowerUw> slope_uw;         // (num_coarse_vertices)

  // Instructions and edges of `problem`, with these hulls.
  [[nodiscard]] FrontierProblem of(const FrontierProblem& problem) const;
};

// Of every hull the largest convex function below it with such slopes: its tangents. It begins where the hull begins and is
// least where the hull is, but for the rounding of its vertices.
CoarseHulls coarse_hulls(const FrontierProblem& problem, PowerUw quantum_uw);

}  // namespace perseus
