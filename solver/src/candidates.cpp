#include "candidates.hpp"

#include <numeric>

namespace perseus {

std::vector<std::size_t> lower_hull(const std::vector<Candidate>& candidates) {
  std::vector<std::size_t> order(candidates.size()), hull;
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto t = [&](std::size_t k) { return candidates[k].outcome.time_ps; };
  const auto e = [&](std::size_t k) { return candidates[k].outcome.effective_uj; };
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) { return t(a) != t(b) ? t(a) < t(b) : e(a) < e(b); });
  for (const std::size_t k : order) {
    if (!hull.empty() && e(k) >= e(hull.back())) continue;
    const auto is_above = [&](std::size_t a, std::size_t b) {  // b, on or above the line from a to k
      return static_cast<EnergyAj>(e(b) - e(a)) * (t(k) - t(b)) >= static_cast<EnergyAj>(e(k) - e(b)) * (t(b) - t(a));
    };
    while (hull.size() >= 2 && is_above(hull[hull.size() - 2], hull.back())) hull.pop_back();
    hull.push_back(k);
  }
  return hull;
}

std::vector<std::vector<std::int32_t>> handover_orders(std::span<const std::int32_t> microbatch,
                                                       std::span<const TimePs> end_ps) {
  std::vector<std::int32_t> order(microbatch.size());
  std::iota(order.begin(), order.end(), 0);
  std::vector<std::vector<std::int32_t>> orders;
  const auto add = [&](auto key) {
    std::ranges::stable_sort(order, {}, key);
    orders.push_back(order);
    orders.emplace_back(order.rbegin(), order.rend());
  };
  add([&](std::int32_t i) { return end_ps[i]; });
  add([&](std::int32_t i) { return microbatch[i]; });
  return orders;
}

}  // namespace perseus
