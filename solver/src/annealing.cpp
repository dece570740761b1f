#include "annealing.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

namespace perseus {
namespace {

// Lateness costs this many times what it could save, so that the search comes back from it.
constexpr double kLatePrice = 5;

double late_cost(const Annealing::Target& target, TimePs time_ps) {
  const double late_ps = static_cast<double>(std::max<TimePs>(0, time_ps - target.deadline_ps));
  return kLatePrice * static_cast<double>(target.price_uw) / static_cast<double>(kAjPerUj) * late_ps;
}

}  // namespace

Annealing::Annealing(const Graph& graph, const Menu& menu, std::span<const TimePs> latency_ps, double worth_of_change_uj)
    : menu_(menu),
      replay_(graph, menu, latency_ps, true),
      worth_of_change_uj_(worth_of_change_uj),
      order_(graph.order),
      nodes_(graph.size()),
      state_(graph.size()),
      tail_ps_(graph.size()),
      dirty_(static_cast<std::size_t>(graph.size()) / 64 + 1),
      dirty_tails_(dirty_.size()) {
  std::vector<std::int32_t> position(graph.size());
  for (std::int32_t k = 0; k < graph.size(); ++k) position[order_[k]] = k;
  for (std::int32_t k = 0; k < graph.size(); ++k) {
    const std::int32_t i = order_[k];
    Node& node = nodes_[k];
    const std::int32_t curve = menu.curve_of[i];
    node.curve_begin = menu.curve_begin[curve];
    node.num_clocks = menu.curve_begin[curve + 1] - node.curve_begin;
    const std::int32_t p = replay_.previous_clocked(i);
    node.previous = p < 0 ? -1 : position[p];
    node.next = -1;
    node.predecessor_begin = static_cast<std::int32_t>(predecessors_.size());
    for (const std::int32_t j : graph.predecessors_of(i)) predecessors_.push_back(position[j]);
    node.predecessor_end = static_cast<std::int32_t>(predecessors_.size());
    node.successor_begin = static_cast<std::int32_t>(successors_.size());
    for (const std::int32_t j : graph.successors_of(i)) successors_.push_back(position[j]);
    node.successor_end = static_cast<std::int32_t>(successors_.size());
    if (node.successor_begin == node.successor_end) last_.push_back(k);
    if (replay_.clock_mhz(i, 0) == 0) continue;
    clocked_.push_back(k);
    mean_effective_uj_ += static_cast<double>(menu.effective_uj[node.curve_begin]);
    if (node.previous >= 0) nodes_[node.previous].next = k;
  }
  mean_effective_uj_ /= std::max<double>(1, static_cast<double>(clocked_.size()));
}

TimePs Annealing::tail_of(const Node& node) const {
  TimePs tail = 0;
  for (const std::int32_t j : successors_of(node)) tail = std::max(tail, tail_ps_[j] + state_[j].end_ps - state_[j].start_ps);
  return tail;
}

void Annealing::start(const Plan& plan) {
  outcome_ = replay_.play(plan);
  for (std::size_t k = 0; k < state_.size(); ++k) {
    const std::int32_t i = order_[k];
    state_[k] = {replay_.start_ps[i], replay_.end_ps[i], replay_.effective_uj[i], plan[i]};
  }
  for (std::int32_t k = static_cast<std::int32_t>(state_.size()); k-- > 0;) tail_ps_[k] = tail_of(nodes_[k]);
  first_dirty_ = dirty_.size();
}

double Annealing::cost_for(const Target& target) const { return cost(outcome_) + late_cost(target, outcome_.time_ps); }

void Annealing::set_clock(std::int32_t k, std::int32_t clock) {
  clock = std::clamp(clock, 0, nodes_[k].num_clocks - 1);
  if (clock == state_[k].clock) return;
  before_.push_back({k, state_[k]});
  const std::int32_t next = nodes_[k].next;
  outcome_.num_changes -= changes(k) + (next >= 0 ? changes(next) : 0);
  state_[k].clock = clock;
  outcome_.num_changes += changes(k) + (next >= 0 ? changes(next) : 0);
  mark(k);
  last_set_ = std::max(last_set_, k);
  if (next >= 0) {
    mark(next);
    last_set_ = std::max(last_set_, next);
  }
}

void Annealing::move_run(std::int32_t i, std::int32_t step) {
  const std::int32_t clock = state_[i].clock;
  const std::int32_t before = nodes_[i].previous;
  for (std::int32_t k = i; k >= 0 && state_[k].clock == clock; k = nodes_[k].next) set_clock(k, clock + step);
  for (std::int32_t k = before; k >= 0 && state_[k].clock == clock; k = nodes_[k].previous) set_clock(k, clock + step);
}

bool Annealing::can_change_at(std::int32_t k) const {
  const std::int32_t p = nodes_[k].previous;
  return replay_.can_reach(order_[k], state_[k].clock, state_[p].clock, state_[k].start_ps - state_[p].end_ps);
}

void Annealing::set_stretch(std::int32_t i, std::int32_t clock) {
  set_clock(i, clock);
  for (std::int32_t k = i; nodes_[k].previous >= 0 && !can_change_at(k);) {
    const std::int32_t before = nodes_[k].previous;
    set_clock(before, replay_.same_clock_before(order_[k], state_[k].clock));
    k = before;
  }
  for (std::int32_t k = nodes_[i].next; k >= 0 && !can_change_at(k); k = nodes_[k].next) {
    set_clock(k, replay_.same_clock(order_[k], state_[nodes_[k].previous].clock));
  }
}

void Annealing::propose() {
  const auto any = [&] { return clocked_[draw(static_cast<std::int32_t>(clocked_.size()))]; };
  const std::int32_t i = any();
  const std::int32_t previous = nodes_[i].previous, next = nodes_[i].next;
  switch (draw(6)) {
    case 0: set_stretch(i, state_[i].clock + 1 + draw(3)); break;
    case 1: set_stretch(i, state_[i].clock - 1 - draw(3)); break;
    case 2:
      if (previous >= 0) set_stretch(i, replay_.same_clock(order_[i], state_[previous].clock));
      break;
    case 3:  // the clock of the next one, found from its side
      if (next >= 0) set_stretch(i, replay_.same_clock_before(order_[next], state_[next].clock));
      break;
    case 4: move_run(i, draw(2) == 0 ? -1 : 1); break;
    default: {  // time is taken from one and given to another
      set_stretch(i, state_[i].clock + 1 + draw(2));
      const std::int32_t j = next >= 0 && draw(2) == 0 ? next : any();
      set_stretch(j, state_[j].clock - 1 - draw(2));
    }
  }
}

bool Annealing::replay_dirty(const Target& target, double limit) {
  TimePs expected_ps = 0;  // of the iteration, if durations after what is replayed stay as they are
  for (std::size_t word = first_dirty_; word < dirty_.size(); ++word) {
    while (dirty_[word] != 0) {
      const auto bit = static_cast<std::size_t>(std::countr_zero(dirty_[word]));
      dirty_[word] &= dirty_[word] - 1;
      const auto k = static_cast<std::int32_t>(word * 64 + bit);
      const Node& node = nodes_[k];
      State& state = state_[k];
      TimePs start = 0;
      for (const std::int32_t j : predecessors_of(node)) start = std::max(start, state_[j].end_ps);
      const std::int32_t p = node.previous;
      const Replay::Work work = p < 0 ? replay_.work(order_[k], state.clock, 0, 0)
                                      : replay_.work(order_[k], state.clock, state_[p].clock, start - state_[p].end_ps);
      const TimePs end = start + work.duration_ps;
      if (start == state.start_ps && end == state.end_ps && work.effective_uj == state.effective_uj) continue;
      before_.push_back({k, state});
      outcome_.effective_uj += work.effective_uj - state.effective_uj;
      if (end != state.end_ps) {
        for (const std::int32_t j : successors_of(node)) mark(j);
        if (node.next >= 0) mark(node.next);  // constants may lie between: how long its change has is new
      }
      state.start_ps = start;
      state.end_ps = end;
      state.effective_uj = work.effective_uj;
      if (k < last_set_) continue;  // what is taken from one may still be given to another
      expected_ps = std::max(expected_ps, end + tail_ps_[k]);
      if (cost(outcome_) + late_cost(target, expected_ps) > limit) {
        std::fill(dirty_.begin() + static_cast<std::ptrdiff_t>(word), dirty_.end(), 0);
        first_dirty_ = dirty_.size();
        return false;
      }
    }
  }
  first_dirty_ = dirty_.size();
  outcome_.time_ps = 0;
  for (const std::int32_t k : last_) outcome_.time_ps = std::max(outcome_.time_ps, state_[k].end_ps);
  return cost_for(target) <= limit;
}

void Annealing::undo() {
  for (; !before_.empty(); before_.pop_back()) state_[before_.back().k] = before_.back().state;
}

// After an accepted move: tails before the instructions whose durations it changed.
void Annealing::renew_tails() {
  std::size_t word = 0;
  const auto mark_predecessors = [&](std::int32_t k) {
    for (const std::int32_t j : predecessors_of(nodes_[k])) {
      const auto position = static_cast<std::size_t>(j);
      dirty_tails_[position / 64] |= std::uint64_t{1} << (position % 64);
      word = std::max(word, position / 64 + 1);
    }
  };
  for (const auto& [k, was] : before_) {
    if (was.end_ps - was.start_ps != state_[k].end_ps - state_[k].start_ps) mark_predecessors(k);
  }
  while (word > 0) {
    if (dirty_tails_[word - 1] == 0) {
      --word;
      continue;
    }
    const auto bit = static_cast<std::size_t>(std::bit_width(dirty_tails_[word - 1]) - 1);
    dirty_tails_[word - 1] ^= std::uint64_t{1} << bit;
    const auto k = static_cast<std::int32_t>((word - 1) * 64 + bit);
    const TimePs tail = tail_of(nodes_[k]);
    if (tail == tail_ps_[k]) continue;
    tail_ps_[k] = tail;
    mark_predecessors(k);
  }
}

// Where the current plan is better than the best one known.
void Annealing::keep(Archive& archive, std::size_t near) const {
  std::size_t s = near;
  while (s + 1 < archive.best.size() && archive.deadline_ps[s + 1] >= outcome_.time_ps) ++s;
  for (++s; s > 0 && archive.deadline_ps[s - 1] < outcome_.time_ps;) --s;
  for (const double own = cost(outcome_); s > 0 && own < archive.cost[s - 1]; --s) {
    archive.cost[s - 1] = own;
    Candidate& best = archive.best[s - 1];
    best.outcome = outcome_;
    for (std::size_t k = 0; k < state_.size(); ++k) best.plan[order_[k]] = state_[k].clock;
  }
}

void Annealing::run(const Target& target, std::int64_t num_moves, double first_temperature, double last_temperature,
                    Archive& archive, std::size_t near) {
  double now = cost_for(target);
  const double cooling = std::pow(last_temperature / first_temperature, 1.0 / static_cast<double>(num_moves));
  double temperature = first_temperature * mean_effective_uj_;
  keep(archive, near);
  if (clocked_.empty()) return;
  for (std::int64_t move = 0; move < num_moves; ++move, temperature *= cooling) {
    before_.clear();
    last_set_ = 0;
    const Outcome old = outcome_;
    propose();
    if (before_.empty()) continue;
    const double luck = (static_cast<double>(random_()) + 1) / 4294967296.0;
    if (!replay_dirty(target, now - temperature * std::log(luck))) {
      undo();
      outcome_ = old;
      continue;
    }
    now = cost_for(target);
    renew_tails();
    keep(archive, near);
  }
}

}  // namespace perseus
