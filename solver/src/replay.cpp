#include "perseus/replay.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <utility>

namespace perseus {
namespace {

std::vector<std::int32_t> nearest_clocks(const Menu& menu, std::int32_t of_curve, std::int32_t in_curve) {
  const auto clocks =
      menu.clock_mhz.subspan(menu.curve_begin[in_curve], menu.curve_begin[in_curve + 1] - menu.curve_begin[in_curve]);
  std::vector<std::int32_t> nearest;
  for (std::int32_t k = menu.curve_begin[of_curve]; k < menu.curve_begin[of_curve + 1]; ++k) {
    const std::int32_t mhz = menu.clock_mhz[k];
    auto best = std::ranges::lower_bound(clocks, mhz, std::greater{});  // they fall: the first that is no faster
    if (best == clocks.end() || (best != clocks.begin() && best[-1] - mhz <= mhz - *best)) --best;
    nearest.push_back(static_cast<std::int32_t>(best - clocks.begin()));
  }
  return nearest;
}

// As std::llround, without a call.
std::int64_t rounded(double value) {
  const auto whole = static_cast<std::int64_t>(value);
  const double rest = value - static_cast<double>(whole);
  return whole + (rest >= 0.5 ? 1 : 0) - (rest <= -0.5 ? 1 : 0);
}

}  // namespace

Replay::Replay(const Graph& graph, const Menu& menu, std::span<const TimePs> latency_ps, bool shuns_unreached)
    : start_ps(graph.size()),
      end_ps(graph.size()),
      effective_uj(graph.size()),
      graph_(graph),
      menu_(menu),
      latency_ps_(latency_ps),
      shuns_unreached_(shuns_unreached),
      previous_clocked_(graph.size(), -1),
      same_clock_begin_(graph.size(), 0),
      same_clock_before_begin_(graph.size(), 0) {
  const auto is_constant = [&](std::int32_t i) { return clock_mhz(i, 0) == 0; };
  std::map<std::pair<std::int32_t, std::int32_t>, std::int32_t> pairs;
  for (const std::int32_t i : graph.order) {  // in this order, the predecessor is done already
    if (is_constant(i)) continue;
    std::int32_t p = menu.previous_on_rank[i];
    while (p >= 0 && is_constant(p)) p = menu.previous_on_rank[p];
    if (p < 0) continue;
    previous_clocked_[i] = p;
    const std::int32_t first = menu.curve_of[p], second = menu.curve_of[i];
    const auto [entry, is_new] = pairs.try_emplace({first, second}, static_cast<std::int32_t>(same_clock_.size()));
    same_clock_begin_[i] = entry->second;
    same_clock_before_begin_[i] = entry->second + menu.curve_begin[first + 1] - menu.curve_begin[first];
    if (!is_new) continue;
    for (const auto& nearest : {nearest_clocks(menu, first, second), nearest_clocks(menu, second, first)}) {
      same_clock_.insert(same_clock_.end(), nearest.begin(), nearest.end());
    }
  }
}

Replay::Work Replay::changed(std::int32_t i, std::int32_t index, std::int32_t before, TimePs late_ps, const Work& work) const {
  const std::int32_t old = menu_.curve_begin[menu_.curve_of[i]] + same_clock(i, before);
  if (shuns_unreached_ && !can_reach(i, index, before, latency_of(i, index) - late_ps)) {
    return {.duration_ps = std::max(menu_.duration_ps[old], work.duration_ps),
            .effective_uj = std::max(menu_.effective_uj[old], work.effective_uj) + price_of_unreached_uj(i)};
  }
  const double share = std::min(1.0, static_cast<double>(late_ps) / static_cast<double>(menu_.duration_ps[old]));
  const auto blend = [share](std::int64_t at_old, std::int64_t at_new) {
    return at_new + rounded(share * static_cast<double>(at_old - at_new));
  };
  return {.duration_ps = blend(menu_.duration_ps[old], work.duration_ps),
          .effective_uj = blend(menu_.effective_uj[old], work.effective_uj)};
}

Outcome Replay::play(std::span<const std::int32_t> plan) {
  Outcome outcome;
  for (const std::int32_t i : graph_.order) {
    TimePs start = 0;
    for (const std::int32_t j : graph_.predecessors_of(i)) start = std::max(start, end_ps[j]);
    const std::int32_t p = previous_clocked_[i];
    const Work done = p < 0 ? work(i, plan[i], 0, 0) : work(i, plan[i], plan[p], start - end_ps[p]);
    outcome.num_changes += changes(i, plan) ? 1 : 0;
    start_ps[i] = start;
    end_ps[i] = start + done.duration_ps;
    effective_uj[i] = done.effective_uj;
    outcome.time_ps = std::max(outcome.time_ps, end_ps[i]);
    outcome.effective_uj += done.effective_uj;
  }
  return outcome;
}

bool Replay::reaches_all(std::span<const std::int32_t> plan) const {
  for (const std::int32_t i : graph_.order) {
    const std::int32_t p = previous_clocked_[i];
    if (changes(i, plan) && !can_reach(i, plan[i], plan[p], start_ps[i] - end_ps[p])) return false;
  }
  return true;
}

}  // namespace perseus
