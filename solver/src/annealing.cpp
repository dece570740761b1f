#include "annealing.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace perseus {
namespace {

// Temperatures as shares of an instruction's mean effective energy: at first a worse clock here and there, at last none.
constexpr double kFirstTemperature = 0.03;
constexpr double kLastTemperature = 0.0003;
// Lateness costs this many times what it could save, so that the search comes back from it.
constexpr double kLatePrice = 5;
// Between two words on how far a run is.
constexpr std::int64_t kMovesAtOnce = 4096;

}  // namespace

Annealing::Annealing(const Graph& graph, const Menu& menu, std::span<const TimePs> latency_ps, double worth_of_change_uj)
    : graph_(graph),
      menu_(menu),
      replay_(graph, menu, latency_ps, true),
      worth_of_change_uj_(worth_of_change_uj),
      position_(graph.size()),
      next_clocked_(graph.size(), -1),
      dirty_(static_cast<std::size_t>(graph.size()) / 64 + 1) {
  for (std::int32_t k = 0; k < graph.size(); ++k) {
    const std::int32_t i = graph.order[k];
    position_[i] = k;
    if (graph.successors_of(i).empty()) last_.push_back(i);
    if (replay_.clock_mhz(i, 0) == 0) continue;
    clocked_.push_back(i);
    mean_effective_uj_ += static_cast<double>(menu.effective_uj[menu.curve_begin[menu.curve_of[i]]]);
    if (replay_.previous_clocked(i) >= 0) next_clocked_[replay_.previous_clocked(i)] = i;
  }
  mean_effective_uj_ /= std::max<double>(1, static_cast<double>(clocked_.size()));
}

void Annealing::reset(const Plan& plan) {
  plan_ = plan;
  outcome_ = replay_.play(plan_);
}

void Annealing::set_clock(std::int32_t i, std::int32_t clock) {
  const std::int32_t curve = menu_.curve_of[i];
  clock = std::clamp(clock, 0, menu_.curve_begin[curve + 1] - menu_.curve_begin[curve] - 1);
  if (clock == plan_[i]) return;
  before_.push_back({i, plan_[i], replay_.start_ps[i], replay_.end_ps[i], replay_.effective_uj[i]});
  const std::int32_t next = next_clocked_[i];
  outcome_.num_changes -= static_cast<int>(replay_.changes(i, plan_)) + (next >= 0 && replay_.changes(next, plan_) ? 1 : 0);
  plan_[i] = clock;
  outcome_.num_changes += static_cast<int>(replay_.changes(i, plan_)) + (next >= 0 && replay_.changes(next, plan_) ? 1 : 0);
  mark(i);
  if (next >= 0) mark(next);
}

void Annealing::move_run(std::int32_t i, std::int32_t step) {
  const std::int32_t clock = plan_[i];
  const std::int32_t before = replay_.previous_clocked(i);
  for (std::int32_t k = i; k >= 0 && plan_[k] == clock; k = next_clocked_[k]) set_clock(k, clock + step);
  for (std::int32_t k = before; k >= 0 && plan_[k] == clock; k = replay_.previous_clocked(k)) set_clock(k, clock + step);
}

bool Annealing::can_change_at(std::int32_t i) const {
  const std::int32_t p = replay_.previous_clocked(i);
  return replay_.can_reach(i, plan_[i], plan_[p], replay_.start_ps[i] - replay_.end_ps[p]);
}

void Annealing::set_stretch(std::int32_t i, std::int32_t clock) {
  set_clock(i, clock);
  for (std::int32_t k = i; replay_.previous_clocked(k) >= 0 && !can_change_at(k);) {
    const std::int32_t before = replay_.previous_clocked(k);
    set_clock(before, replay_.same_clock_before(k, plan_[k]));
    k = before;
  }
  for (std::int32_t k = next_clocked_[i]; k >= 0 && !can_change_at(k); k = next_clocked_[k]) {
    set_clock(k, replay_.same_clock(k, plan_[replay_.previous_clocked(k)]));
  }
}

void Annealing::propose() {
  const auto any = [&] { return clocked_[draw(static_cast<std::int32_t>(clocked_.size()))]; };
  const std::int32_t i = any();
  const std::int32_t previous = replay_.previous_clocked(i), next = next_clocked_[i];
  switch (draw(6)) {
    case 0: set_stretch(i, plan_[i] + 1 + draw(3)); break;
    case 1: set_stretch(i, plan_[i] - 1 - draw(3)); break;
    case 2:
      if (previous >= 0) set_stretch(i, replay_.same_clock(i, plan_[previous]));
      break;
    case 3:  // the clock of the next one, found from its side
      if (next >= 0) set_stretch(i, replay_.same_clock_before(next, plan_[next]));
      break;
    case 4: move_run(i, draw(2) == 0 ? -1 : 1); break;
    default: {  // time is taken from one and given to another
      set_stretch(i, plan_[i] + 1 + draw(2));
      const std::int32_t j = next >= 0 && draw(2) == 0 ? next : any();
      set_stretch(j, plan_[j] - 1 - draw(2));
    }
  }
}

void Annealing::replay_dirty() {
  for (std::size_t word = first_dirty_; word < dirty_.size(); ++word) {
    while (dirty_[word] != 0) {
      const auto bit = static_cast<std::size_t>(std::countr_zero(dirty_[word]));
      dirty_[word] &= dirty_[word] - 1;
      const std::int32_t i = graph_.order[word * 64 + bit];
      TimePs start = 0;
      for (const std::int32_t j : graph_.predecessors_of(i)) start = std::max(start, replay_.end_ps[j]);
      const std::int32_t p = replay_.previous_clocked(i);
      const Replay::Work work =
          p < 0 ? replay_.work(i, plan_[i], 0, 0) : replay_.work(i, plan_[i], plan_[p], start - replay_.end_ps[p]);
      const TimePs end = start + work.duration_ps;
      if (start == replay_.start_ps[i] && end == replay_.end_ps[i] && work.effective_uj == replay_.effective_uj[i]) continue;
      before_.push_back({i, plan_[i], replay_.start_ps[i], replay_.end_ps[i], replay_.effective_uj[i]});
      outcome_.effective_uj += work.effective_uj - replay_.effective_uj[i];
      if (end != replay_.end_ps[i]) {
        for (const std::int32_t j : graph_.successors_of(i)) mark(j);
        if (next_clocked_[i] >= 0) mark(next_clocked_[i]);  // constants may lie between: how long its change has is new
      }
      replay_.start_ps[i] = start;
      replay_.end_ps[i] = end;
      replay_.effective_uj[i] = work.effective_uj;
    }
  }
  first_dirty_ = dirty_.size();
  outcome_.time_ps = 0;
  for (const std::int32_t i : last_) outcome_.time_ps = std::max(outcome_.time_ps, replay_.end_ps[i]);
}

void Annealing::undo() {
  for (; !before_.empty(); before_.pop_back()) {
    const Before& before = before_.back();
    plan_[before.i] = before.clock;
    replay_.start_ps[before.i] = before.start_ps;
    replay_.end_ps[before.i] = before.end_ps;
    replay_.effective_uj[before.i] = before.effective_uj;
  }
}

Candidate Annealing::run(const Candidate& start, TimePs deadline_ps, PowerUw price_uw, std::int64_t num_moves,
                         const std::function<bool(std::int64_t)>& go_on) {
  random_.seed(std::mt19937::default_seed);
  first_dirty_ = dirty_.size();
  reset(start.plan);
  const double price = kLatePrice * static_cast<double>(price_uw) / static_cast<double>(kAjPerUj);
  const auto cost_of = [&](const Outcome& outcome) {
    return this->cost(outcome) + price * static_cast<double>(std::max<TimePs>(0, outcome.time_ps - deadline_ps));
  };
  Candidate best{.plan = plan_, .outcome = outcome_};
  double now = cost_of(outcome_);
  double best_cost = outcome_.time_ps <= deadline_ps ? now : std::numeric_limits<double>::infinity();
  const double cooling = std::pow(kLastTemperature / kFirstTemperature, 1.0 / static_cast<double>(num_moves));
  double temperature = kFirstTemperature * mean_effective_uj_;
  for (std::int64_t move = 0; move < num_moves; ++move, temperature *= cooling) {
    if (move > 0 && move % kMovesAtOnce == 0 && !go_on(kMovesAtOnce)) return best;
    before_.clear();
    const Outcome old = outcome_;
    propose();
    if (before_.empty()) continue;
    replay_dirty();
    const double new_cost = cost_of(outcome_);
    const double luck = (static_cast<double>(random_()) + 1) / 4294967296.0;
    if (new_cost > now - temperature * std::log(luck)) {
      undo();
      outcome_ = old;
      continue;
    }
    now = new_cost;
    if (outcome_.time_ps <= deadline_ps && now < best_cost) {
      best = {.plan = plan_, .outcome = outcome_};
      best_cost = now;
    }
  }
  go_on((num_moves - 1) % kMovesAtOnce + 1);
  return best;
}

}  // namespace perseus
