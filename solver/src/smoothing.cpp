#include "smoothing.hpp"

#include <algorithm>
#include <functional>
#include <limits>

namespace perseus {
namespace {

// [uJ/ps] What outlasting a window costs: more than any clock could save.
constexpr double kLate = 1000.0;
// A clock is tried where it lies between those of so many neighbours on either side, and of those that no change can come
// between, or so few steps beyond.
constexpr std::size_t kNeighbours = 2;
constexpr std::int32_t kStepsBeyond = 5;

}  // namespace

Smoothing::Smoothing(const Graph& graph, const Menu& menu, std::span<const TimePs> latency_ps)
    : menu_(menu), replay_(graph, menu, latency_ps, true), range_(graph.size()) {
  std::vector<std::int32_t> rank(graph.size(), -1);
  for (const std::int32_t i : graph.order) {
    if (replay_.clock_mhz(i, 0) == 0) continue;
    const std::int32_t p = replay_.previous_clocked(i);
    if (p < 0) {
      rank[i] = static_cast<std::int32_t>(clocked_.size());
      clocked_.emplace_back();
    } else {
      rank[i] = rank[p];
    }
    clocked_[rank[i]].push_back(i);
  }
  for (const std::int32_t curve : menu.curve_of) {
    worth_of_change_uj_ += static_cast<double>(menu.effective_uj[menu.curve_begin[curve]]);
  }
  worth_of_change_uj_ *= kWorthOfChange / static_cast<double>(graph.size());
  TimePs shortest_ps = std::numeric_limits<TimePs>::max();
  for (const auto& clocked : clocked_) {
    for (const std::int32_t i : clocked)
      shortest_ps = std::min(shortest_ps, menu.duration_ps[menu.curve_begin[menu.curve_of[i]]]);
  }
  const TimePs longest_ps = latency_ps.empty() ? 0 : std::ranges::max(latency_ps);
  num_neighbours_ = kNeighbours + static_cast<std::size_t>(longest_ps / std::max<TimePs>(1, shortest_ps));
}

void Smoothing::find_ranges(std::span<const std::int32_t> near) {
  for (const auto& clocked : clocked_) {
    for (std::size_t position = 0; position < clocked.size(); ++position) {
      const std::int32_t i = clocked[position];
      std::int32_t least = std::numeric_limits<std::int32_t>::max(), most = 0;
      const std::size_t end = std::min(position + num_neighbours_ + 1, clocked.size());
      for (std::size_t k = position - std::min(position, num_neighbours_); k < end; ++k) {
        const std::int32_t mhz = replay_.clock_mhz(clocked[k], near[clocked[k]]);
        least = std::min(least, mhz);
        most = std::max(most, mhz);
      }
      const std::int32_t curve = menu_.curve_of[i];
      const auto clocks =
          menu_.clock_mhz.subspan(menu_.curve_begin[curve], menu_.curve_begin[curve + 1] - menu_.curve_begin[curve]);
      const auto first = static_cast<std::int32_t>(std::ranges::lower_bound(clocks, most, std::greater{}) - clocks.begin());
      const auto last = static_cast<std::int32_t>(std::ranges::upper_bound(clocks, least, std::greater{}) - clocks.begin()) - 1;
      const auto num = static_cast<std::int32_t>(clocks.size());
      range_[i] = {.first = std::clamp(first - kStepsBeyond, 0, num - 1), .last = std::clamp(last + kStepsBeyond, 0, num - 1)};
    }
  }
}

Plan Smoothing::cheapest(const Windows& windows, std::span<const std::int32_t> near) {
  find_ranges(near);
  Plan plan(menu_.num_instructions(), 0);
  std::vector<double> cost, next, duration, priced;
  std::vector<std::int32_t> came_from, begin;
  for (const auto& clocked : clocked_) {
    came_from.clear();
    begin.clear();
    for (const std::int32_t i : clocked) {
      const std::int32_t curve = menu_.curve_of[i];
      const std::int32_t num_clocks = menu_.curve_begin[curve + 1] - menu_.curve_begin[curve];
      const auto t = menu_.duration_ps.subspan(menu_.curve_begin[curve], num_clocks);
      const auto e = menu_.effective_uj.subspan(menu_.curve_begin[curve], num_clocks);
      const double price =
          windows.price_uw.empty() ? 0 : static_cast<double>(windows.price_uw[i]) / static_cast<double>(kAjPerUj);
      const double room = windows.end_ps.empty() ? std::numeric_limits<double>::infinity()
                                                 : static_cast<double>(windows.end_ps[i] - windows.start_ps[i]);
      duration.assign(t.begin(), t.end());
      priced.resize(num_clocks);
      for (std::int32_t k = 0; k < num_clocks; ++k) priced[k] = static_cast<double>(e[k]) + price * duration[k];
      // What i costs if it spends `share` of its work at the old clock and the rest at clock k.
      const auto own = [&](std::int32_t old, double share, std::int32_t k) {
        const double late = share * duration[old] + (1 - share) * duration[k] - room;
        return share * priced[old] + (1 - share) * priced[k] + kLate * std::max(0.0, late);
      };
      begin.push_back(static_cast<std::int32_t>(came_from.size()));
      came_from.resize(came_from.size() + num_clocks, 0);
      std::int32_t* const from = came_from.data() + begin.back();
      const std::int32_t p = replay_.previous_clocked(i);
      next.assign(num_clocks, std::numeric_limits<double>::infinity());
      if (p < 0) {
        for (std::int32_t k = range_[i].first; k <= range_[i].last; ++k) next[k] = own(k, 0, k);
        std::swap(cost, next);
        continue;
      }
      const auto t_before = menu_.duration_ps.subspan(menu_.curve_begin[menu_.curve_of[p]], cost.size());
      const TimePs between = windows.start_ps[i] - windows.start_ps[p];
      for (std::int32_t q = range_[p].first; q <= range_[p].last; ++q) {
        const std::int32_t old = replay_.same_clock(i, q);
        const TimePs gap = std::max<TimePs>(0, between - t_before[q]);
        const double changed = cost[q] + worth_of_change_uj_;
        const double rate = 1 / static_cast<double>(t[old]);
        for (std::int32_t k = range_[i].first; k <= range_[i].last; ++k) {
          const double late = static_cast<double>(std::max<TimePs>(0, replay_.latency_of(i, k) - gap));
          const double share = std::min(1.0, late * rate);
          const double unreached = replay_.can_reach(i, k, q, gap) ? 0 : static_cast<double>(replay_.price_of_unreached_uj(i));
          const double total = changed + unreached + own(old, share, k);
          from[k] = total < next[k] ? q : from[k];
          next[k] = std::min(total, next[k]);
        }
        const bool is_tried = range_[i].first <= old && old <= range_[i].last;
        if (is_tried && replay_.clock_mhz(p, q) == replay_.clock_mhz(i, old) && cost[q] + own(old, 0, old) < next[old]) {
          next[old] = cost[q] + own(old, 0, old);
          from[old] = q;
        }
      }
      std::swap(cost, next);
    }
    if (clocked.empty()) continue;
    auto k = static_cast<std::int32_t>(std::ranges::min_element(cost) - cost.begin());
    for (std::size_t position = clocked.size(); position-- > 0;) {
      plan[clocked[position]] = k;
      k = came_from[begin[position] + k];
    }
  }
  return plan;
}

}  // namespace perseus
