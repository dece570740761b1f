#include "sandwich.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

namespace perseus {
namespace {

EnergyAj floor_div(EnergyAj a, EnergyAj b) { return a / b - (a % b < 0 ? 1 : 0); }  // b > 0

// The greatest of the lines at each time, from the time where it leaves 0 down to t_min.
void trace_lines(std::span<const Proposal> proposals, TimePs t_min_ps, Sandwich& s) {
  std::vector<const Proposal*> lines;
  for (const Proposal& p : proposals) lines.push_back(&p);
  std::ranges::sort(lines, [](const Proposal* a, const Proposal* b) {
    return a->slope_sum_uw != b->slope_sum_uw ? a->slope_sum_uw < b->slope_sum_uw : a->line_sum_aj > b->line_sum_aj;
  });
  struct Piece {
    TimePs until_ps;  // the latest time at which the line is the greatest
    PowerUw slope_sum_uw;
    EnergyAj line_sum_aj;
  };
  std::vector<Piece> pieces{{std::numeric_limits<TimePs>::max(), 0, 0}};
  for (const Proposal* line : lines) {
    if (line->slope_sum_uw == pieces.back().slope_sum_uw) continue;
    for (;;) {
      const Piece& before = pieces.back();
      const EnergyAj meet_ps = floor_div(line->line_sum_aj - before.line_sum_aj, line->slope_sum_uw - before.slope_sum_uw);
      if (meet_ps < t_min_ps) break;
      if (meet_ps < before.until_ps) {
        pieces.push_back({static_cast<TimePs>(meet_ps), line->slope_sum_uw, line->line_sum_aj});
        break;
      }
      pieces.pop_back();
    }
  }
  const auto add = [&](TimePs time_ps, EnergyAj energy_aj) {
    if (!s.time_ps.empty()) {
      const TimePs fallen_ps = s.time_ps.back() - time_ps;
      s.slope_uw.back() = static_cast<PowerUw>((energy_aj - s.energy_aj.back() + fallen_ps / 2) / fallen_ps);
    }
    s.time_ps.push_back(time_ps);
    s.energy_aj.push_back(energy_aj);
    s.slope_uw.push_back(0);
  };
  const auto energy_at = [](const Piece& piece, TimePs time_ps) {
    return floor_div(piece.line_sum_aj - static_cast<EnergyAj>(piece.slope_sum_uw) * time_ps, kSolutionsInMean);
  };
  for (std::size_t k = 1; k < pieces.size(); ++k) {
    const EnergyAj energy_aj = k == 1 ? 0 : energy_at(pieces[k], pieces[k].until_ps);
    if (k == 1 || energy_aj - s.energy_aj.back() >= kAjPerUj) add(pieces[k].until_ps, energy_aj);
  }
  const EnergyAj most_aj = energy_at(pieces.back(), t_min_ps);
  while (s.time_ps.size() > 1 && most_aj - s.energy_aj.back() < kAjPerUj) {
    s.time_ps.pop_back(), s.energy_aj.pop_back(), s.slope_uw.pop_back();
  }
  if (s.time_ps.empty() || s.time_ps.back() > t_min_ps) add(t_min_ps, s.time_ps.empty() ? 0 : most_aj);
}

void trace_schedules(std::span<const Proposal> proposals, Sandwich& s) {
  std::vector<std::size_t> order(proposals.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) {
    const Proposal &p = proposals[a], &q = proposals[b];
    return p.time_ps != q.time_ps ? p.time_ps > q.time_ps : p.upper_aj < q.upper_aj;
  });
  std::vector<std::size_t>& hull = s.on_hull;
  for (const std::size_t k : order) {
    const Proposal& p = proposals[k];
    if (!hull.empty() && p.time_ps == proposals[hull.back()].time_ps) continue;
    while (hull.size() > 1) {
      const Proposal &a = proposals[hull.end()[-2]], &b = proposals[hull.back()];
      // b stays where it is below the line from a to p. Rounded: 128 bits do not hold the product, and every choice is valid.
      if (static_cast<long double>(b.upper_aj - a.upper_aj) * static_cast<long double>(a.time_ps - p.time_ps) <
          static_cast<long double>(p.upper_aj - a.upper_aj) * static_cast<long double>(a.time_ps - b.time_ps)) {
        break;
      }
      hull.pop_back();
    }
    hull.push_back(k);
  }
}

// A piecewise linear function at times that fall from call to call.
class Falling {
 public:
  Falling(std::vector<TimePs> time_ps, std::vector<EnergyAj> energy_aj)
      : time_ps_(std::move(time_ps)), energy_aj_(std::move(energy_aj)) {}

  double at(TimePs time_ps) {
    while (k_ + 1 < time_ps_.size() && time_ps_[k_ + 1] >= time_ps) ++k_;
    const auto energy = static_cast<double>(energy_aj_[k_]);
    if (time_ps >= time_ps_[k_] || k_ + 1 == time_ps_.size()) return energy;
    const double share = static_cast<double>(time_ps_[k_] - time_ps) / static_cast<double>(time_ps_[k_] - time_ps_[k_ + 1]);
    return energy + share * static_cast<double>(energy_aj_[k_ + 1] - energy_aj_[k_]);
  }

 private:
  std::vector<TimePs> time_ps_;
  std::vector<EnergyAj> energy_aj_;
  std::size_t k_ = 0;
};

}  // namespace

HullCosts::HullCosts(const FrontierProblem& problem) : problem_(problem), energy_aj_(problem.hull_ps.size()) {
  for (std::size_t c = 0; c + 1 < problem.hull_begin.size(); ++c) {
    for (std::int32_t v = problem.hull_begin[c + 1] - 2; v >= problem.hull_begin[c]; --v) {
      const TimePs longer_ps = problem.hull_ps[v + 1] - problem.hull_ps[v];
      energy_aj_[v] = energy_aj_[v + 1] + static_cast<EnergyAj>(problem.slope_uw[v]) * longer_ps;
    }
  }
}

Proposal HullCosts::propose(TimePs time_sum_ps, PowerUw slope_sum_uw, std::span<const std::int64_t> sums) const {
  const std::size_t n = problem_.curve_of.size();
  Proposal p;
  p.time_ps = (time_sum_ps + kSolutionsInMean - 1) / kSolutionsInMean;
  p.slope_sum_uw = slope_sum_uw;
  p.values.resize(3 * n);
  std::ranges::transform(sums, p.values.begin(), [](std::int64_t sum) { return sum / kSolutionsInMean; });
  for (std::size_t i = 0; i < n; ++i) {
    // Rounding down keeps every precedence, and every duration at or above the shortest one.
    p.upper_aj += energy_aj(problem_.curve_of[i], p.values[n + i] - p.values[i]);
    p.line_sum_aj += least_sum_aj(problem_.curve_of[i], sums[2 * n + i]);
  }
  return p;
}

EnergyAj HullCosts::energy_aj(std::int32_t curve, TimePs duration_ps) const {
  const auto begin = problem_.hull_ps.begin() + problem_.hull_begin[curve];
  const auto end = problem_.hull_ps.begin() + problem_.hull_begin[curve + 1];
  const auto longer = std::upper_bound(begin, end, duration_ps);
  if (longer == end) return 0;
  const auto v = longer - problem_.hull_ps.begin() - 1;
  return energy_aj_[v] - static_cast<EnergyAj>(problem_.slope_uw[v]) * (duration_ps - problem_.hull_ps[v]);
}

EnergyAj HullCosts::least_sum_aj(std::int32_t curve, PowerUw price_sum_uw) const {
  const auto begin = problem_.slope_uw.begin() + problem_.hull_begin[curve];
  const auto end = problem_.slope_uw.begin() + problem_.hull_begin[curve + 1];
  const auto at = std::partition_point(
      begin, end, [&](PowerUw slope_uw) { return static_cast<EnergyAj>(slope_uw) * kSolutionsInMean > price_sum_uw; });
  const auto v = at - problem_.slope_uw.begin();
  return energy_aj_[v] * kSolutionsInMean + static_cast<EnergyAj>(price_sum_uw) * problem_.hull_ps[v];
}

Sandwich::Sandwich(std::span<const Proposal> proposals, TimePs t_min_ps, EnergyUj least_uj, PowerUw blocking_uw) {
  trace_lines(proposals, t_min_ps, *this);
  trace_schedules(proposals, *this);
  std::vector<TimePs> schedule_ps, all_ps = time_ps;
  std::vector<EnergyAj> schedule_aj;
  for (const std::size_t k : on_hull) {
    schedule_ps.push_back(proposals[k].time_ps);
    schedule_aj.push_back(proposals[k].upper_aj);
  }
  all_ps.insert(all_ps.end(), schedule_ps.begin(), schedule_ps.end());
  std::ranges::sort(all_ps, std::greater{});
  Falling upper(std::move(schedule_ps), std::move(schedule_aj)), lower(time_ps, energy_aj);
  for (const TimePs at_ps : all_ps) {
    const double below = lower.at(at_ps);
    const double total = static_cast<double>(least_uj) * static_cast<double>(kAjPerUj) + below +
                         static_cast<double>(blocking_uw) * static_cast<double>(at_ps);
    const double gap = upper.at(at_ps) - below;
    gaps.push_back({at_ps, gap > 0 ? gap / total : 0});
  }
}

double Sandwich::worst_share() const {
  double worst = 0;
  for (const Gap& gap : gaps) worst = std::max(worst, gap.share);
  return worst;
}

}  // namespace perseus
