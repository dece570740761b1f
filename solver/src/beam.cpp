#include "beam.hpp"

#include <algorithm>
#include <numeric>

#include "residual.hpp"

namespace perseus {
namespace {

// Two partial plans that cost and end alike are one, but for the last bits of a sum.
constexpr double kSameCostUj = 1e-3;

double uj_of(PowerUw power_uw, TimePs time_ps) {
  return static_cast<double>(power_uw) * static_cast<double>(time_ps) / static_cast<double>(kAjPerUj);
}

}  // namespace

Beam::Beam(const Graph& graph, const Menu& menu, const Choices& choices, std::int32_t width)
    : graph_(graph),
      menu_(menu),
      choices_(choices),
      width_(static_cast<std::size_t>(width)),
      slot_(graph.size()),
      waiting_(graph.size()),
      cost_uj_(width_),
      next_cost_uj_(width_),
      parent_(static_cast<std::size_t>(graph.size()) * width_),
      choice_(static_cast<std::size_t>(graph.size()) * width_) {}

// The order of time, and where each end is kept until its last successor has started.
void Beam::prepare(const Sample& sample) {
  order_ = graph_.order;
  std::ranges::stable_sort(order_, [&](std::int32_t a, std::int32_t b) {
    return sample.start_ps[a] != sample.start_ps[b] ? sample.start_ps[a] < sample.start_ps[b]
                                                    : sample.end_ps[a] < sample.end_ps[b];
  });
  free_slots_.clear();
  num_slots_ = 0;
  for (const std::int32_t i : order_) {
    waiting_[i] = static_cast<std::int32_t>(graph_.successors_of(i).size());
    for (const std::int32_t j : graph_.predecessors_of(i)) {
      if (--waiting_[j] == 0) free_slots_.push_back(slot_[j]);
    }
    if (free_slots_.empty()) free_slots_.push_back(static_cast<std::int32_t>(num_slots_++));
    slot_[i] = free_slots_.back();
    free_slots_.pop_back();
    if (waiting_[i] == 0) free_slots_.push_back(slot_[i]);
  }
  end_ps_.resize(width_ * num_slots_);
  next_end_ps_.resize(width_ * num_slots_);
}

// The choices of the parents, and what they cost above the cheapest of all.
void Beam::add_options(std::int32_t i, PowerUw price_uw, std::span<const Plan* const> parents) {
  const std::int32_t curve = menu_.curve_of[i];
  const auto t = choices_.duration_ps(curve);
  const auto e = choices_.effective_uj(curve);
  const std::int32_t best = choices_.cheapest(curve, kInfinite, price_uw);
  const auto cost_of = [&](std::int32_t k) { return static_cast<double>(e[k]) + uj_of(price_uw, t[k]); };
  const double least_uj = cost_of(best);
  options_.clear();
  const auto add = [&](std::int32_t k) {
    if (std::ranges::find(options_, k, &Option::choice) == options_.end())
      options_.push_back({.cost_uj = cost_of(k) - least_uj, .choice = k});
  };
  for (const Plan* const parent : parents) add((*parent)[i]);
}

void Beam::keep_best() {
  const auto is_better = [](const Child& a, const Child& b) {
    if (a.cost_uj != b.cost_uj) return a.cost_uj < b.cost_uj;
    if (a.end_ps != b.end_ps) return a.end_ps < b.end_ps;
    return a.parent != b.parent ? a.parent < b.parent : a.choice < b.choice;
  };
  const std::size_t considered = std::min(children_.size(), 2 * width_);
  std::ranges::partial_sort(children_, children_.begin() + static_cast<std::ptrdiff_t>(considered), is_better);
  children_.resize(considered);
  const auto twins = std::ranges::unique(
      children_, [](const Child& a, const Child& b) { return a.end_ps == b.end_ps && b.cost_uj - a.cost_uj < kSameCostUj; });
  children_.erase(twins.begin(), twins.end());
  if (children_.size() > width_) children_.resize(width_);
}

std::vector<Plan>& Beam::cross(const Sample& sample, std::span<const TimePs> latest_end_ps,
                               std::span<const Plan* const> parents, std::size_t num_plans) {
  plans_.clear();
  if (sample.flow_uw.empty()) return plans_;
  prepare(sample);
  const std::size_t n = order_.size();
  std::size_t num_states = 1;
  cost_uj_[0] = 0;
  for (std::size_t step = 0; step < n; ++step) {
    const std::int32_t i = order_[step];
    const auto predecessors = graph_.predecessors_of(i);
    const PowerUw* const flow_uw = sample.flow_uw.data() + graph_.predecessor_begin[i];
    const bool is_last = graph_.successors_of(i).empty();
    const auto t = choices_.duration_ps(menu_.curve_of[i]);
    add_options(i, sample.price_uw[i], parents);
    const auto start_of = [&](const TimePs* end) {
      TimePs start = 0;
      for (const std::int32_t j : predecessors) start = std::max(start, end[slot_[j]]);
      return start;
    };
    const auto waiting_uj = [&](const TimePs* end, TimePs start) {
      double uj = 0;
      for (std::size_t k = 0; k < predecessors.size(); ++k) uj += uj_of(flow_uw[k], start - end[slot_[predecessors[k]]]);
      return uj;
    };
    const auto left_uj = [&](TimePs end) { return is_last ? uj_of(sample.price_uw[i], sample.time_ps - end) : 0; };
    if (options_.size() == 1) {  // the parents agree
      const Option only = options_.front();
      std::size_t kept = 0;
      for (std::size_t state = 0; state < num_states; ++state) {
        TimePs* const end = end_ps_.data() + state * num_slots_;
        const TimePs start = start_of(end);
        const TimePs now = start + t[only.choice];
        if (now > latest_end_ps[i]) continue;
        const double cost_uj = cost_uj_[state] + waiting_uj(end, start) + only.cost_uj + left_uj(now);
        TimePs* const to = end_ps_.data() + kept * num_slots_;
        if (to != end) std::copy(end, end + num_slots_, to);
        to[slot_[i]] = now;
        cost_uj_[kept] = cost_uj;
        parent_[step * width_ + kept] = static_cast<std::int32_t>(state);
        choice_[step * width_ + kept] = only.choice;
        ++kept;
      }
      if (kept == 0) return plans_;
      num_states = kept;
      continue;
    }
    children_.clear();
    for (std::size_t state = 0; state < num_states; ++state) {
      const TimePs* const end = end_ps_.data() + state * num_slots_;
      const TimePs start = start_of(end);
      const double cost_uj = cost_uj_[state] + waiting_uj(end, start);
      for (const Option& option : options_) {
        const TimePs now = start + t[option.choice];
        if (now > latest_end_ps[i]) continue;
        children_.push_back({.cost_uj = cost_uj + option.cost_uj + left_uj(now),
                             .end_ps = now,
                             .parent = static_cast<std::int32_t>(state),
                             .choice = option.choice});
      }
    }
    keep_best();
    if (children_.empty()) return plans_;
    num_states = children_.size();
    for (std::size_t state = 0; state < num_states; ++state) {
      const Child& child = children_[state];
      const TimePs* const from = end_ps_.data() + static_cast<std::size_t>(child.parent) * num_slots_;
      TimePs* const to = next_end_ps_.data() + state * num_slots_;
      std::copy(from, from + num_slots_, to);
      to[slot_[i]] = child.end_ps;
      next_cost_uj_[state] = child.cost_uj;
      parent_[step * width_ + state] = child.parent;
      choice_[step * width_ + state] = child.choice;
    }
    std::swap(end_ps_, next_end_ps_);
    std::swap(cost_uj_, next_cost_uj_);
  }
  best_.resize(num_states);
  std::iota(best_.begin(), best_.end(), 0);
  std::ranges::stable_sort(best_, {}, [&](std::int32_t state) { return cost_uj_[static_cast<std::size_t>(state)]; });
  for (std::size_t k = 0; k < std::min(num_states, num_plans); ++k) {
    Plan& plan = plans_.emplace_back(n);
    std::int32_t state = best_[k];
    for (std::size_t step = n; step-- > 0;) {
      plan[order_[step]] = choice_[step * width_ + static_cast<std::size_t>(state)];
      state = parent_[step * width_ + static_cast<std::size_t>(state)];
    }
  }
  return plans_;
}

}  // namespace perseus
