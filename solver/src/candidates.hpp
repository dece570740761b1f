// Plans under construction, and how two of them are joined.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "perseus/realise.hpp"

namespace perseus {

using Candidate = RealisedPlan;

// Indices of the candidates on the lower convex hull of (time, effective energy), ascending in time.
std::vector<std::size_t> lower_hull(const std::vector<Candidate>& candidates);

// Orders in which the instructions of a slow plan can be handed over to a fast one: by microbatch and by time, from either end.
std::vector<std::vector<std::int32_t>> handover_orders(std::span<const std::int32_t> microbatch,
                                                       std::span<const TimePs> end_ps);

// The slow plan with as few instructions, taken in `order`, at the fast plan's clocks as meet the deadline. Between two plans
// that fit their relaxed solutions well, such a joint loses only where they meet. play(plan) gives the outcome.
template <class Play>
Candidate join(const Candidate& fast, const Candidate& slow, std::span<const std::int32_t> order, TimePs deadline_ps,
               Play play) {
  Candidate joint = slow;
  std::size_t low = 0, high = order.size();  // with `high` instructions from the fast plan the joint is on time
  std::size_t now = 0;
  const auto hand_over = [&](std::size_t count) {
    for (; now < count; ++now) joint.plan[order[now]] = fast.plan[order[now]];
    for (; now > count; --now) joint.plan[order[now - 1]] = slow.plan[order[now - 1]];
    joint.outcome = play(joint.plan);
  };
  while (low < high) {
    const std::size_t middle = (low + high) / 2;
    hand_over(middle);
    if (joint.outcome.time_ps <= deadline_ps) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  if (now != high) hand_over(high);
  return joint;
}

}  // namespace perseus
