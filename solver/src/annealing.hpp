// Local search for plans whose clock changes take time.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "candidates.hpp"
#include "perseus/graph.hpp"
#include "perseus/menu.hpp"
#include "perseus/replay.hpp"

namespace perseus {

// The best plan known for each of several deadlines, which a search improves. A plan serves every deadline that it keeps.
struct Archive {
  std::span<const TimePs> deadline_ps;  // falling
  std::span<double> cost;               // as Annealing::cost; infinite where no plan on time is known
  std::span<Candidate> best;
};

// Simulated annealing over the clocks of single instructions, of runs of equal clocks, and of pairs. A move is replayed only
// from where it changes something to where nothing changes any more, and only until it is clear that it will be rejected:
// seven of ten are given up after a few instructions. Being late is allowed at a price on the way, never in the archive.
// Repeatable: the same calls give the same plans. One object per thread.
class Annealing {
 public:
  // `worth_of_change_uj`: what a clock change must save to be made.
  Annealing(const Graph& graph, const Menu& menu, std::span<const TimePs> latency_ps, double worth_of_change_uj);

  void seed(std::uint32_t seed) { random_.seed(seed); }
  // Takes a plan as the current one.
  void start(const Plan& plan);

  // A deadline that plans are sought for, and what a plan may save by being a little late: about the slope of the frontier there.
  struct Target {
    TimePs deadline_ps;
    PowerUw price_uw;
  };
  // Moves on from the current plan while it cools. `near`: index of the deadline in the archive.
  // Temperatures are shares of an instruction's mean effective energy.
  void run(const Target& target, std::int64_t num_moves, double first_temperature, double last_temperature, Archive& archive,
           std::size_t near);

  // Energy with the worth of its changes added.
  [[nodiscard]] double cost(const Outcome& outcome) const {
    return static_cast<double>(outcome.effective_uj) + worth_of_change_uj_ * outcome.num_changes;
  }
  // Of the current plan, lateness included.
  [[nodiscard]] double cost_for(const Target& target) const;
  [[nodiscard]] double mean_effective_uj() const { return mean_effective_uj_; }

 private:
  // An instruction, numbered in topological order; -1 where there is no neighbour with a clock on its rank.
  struct Node {
    std::int32_t curve_begin, num_clocks;
    std::int32_t previous, next;
    std::int32_t predecessor_begin, predecessor_end, successor_begin, successor_end;
  };
  struct State {
    TimePs start_ps, end_ps;
    EnergyUj effective_uj;
    std::int32_t clock;
  };
  struct Before {
    std::int32_t k;
    State state;
  };

  [[nodiscard]] std::span<const std::int32_t> predecessors_of(const Node& node) const {
    return std::span(predecessors_).subspan(node.predecessor_begin, node.predecessor_end - node.predecessor_begin);
  }
  [[nodiscard]] std::span<const std::int32_t> successors_of(const Node& node) const {
    return std::span(successors_).subspan(node.successor_begin, node.successor_end - node.successor_begin);
  }
  [[nodiscard]] TimePs tail_of(const Node& node) const;
  [[nodiscard]] std::int32_t mhz(std::int32_t k, std::int32_t clock) const {
    return menu_.clock_mhz[nodes_[k].curve_begin + clock];
  }
  [[nodiscard]] int changes(std::int32_t k) const {
    const std::int32_t p = nodes_[k].previous;
    return p >= 0 && mhz(p, state_[p].clock) != mhz(k, state_[k].clock) ? 1 : 0;
  }
  void set_clock(std::int32_t k, std::int32_t clock);
  // The same, with all of the neighbours on its rank that no change can come between: they are shorter than the latency.
  void set_stretch(std::int32_t k, std::int32_t clock);
  [[nodiscard]] bool can_change_at(std::int32_t k) const;
  void propose();
  void move_run(std::int32_t k, std::int32_t step);
  // Returns false where the cost, lateness included, will exceed the limit: the state is then half replayed.
  bool replay_dirty(const Target& target, double limit);
  void undo();
  void renew_tails();
  void keep(Archive& archive, std::size_t near) const;
  void mark(std::int32_t k) {
    const auto position = static_cast<std::size_t>(k);
    dirty_[position / 64] |= std::uint64_t{1} << (position % 64);
    first_dirty_ = std::min(first_dirty_, position / 64);
  }
  std::int32_t draw(std::int32_t below) {
    return static_cast<std::int32_t>((static_cast<std::uint64_t>(random_()) * static_cast<std::uint64_t>(below)) >> 32);
  }

  const Menu& menu_;
  Replay replay_;
  double worth_of_change_uj_;
  double mean_effective_uj_ = 0;
  std::vector<std::int32_t> order_;  // (num_instructions): of each node, the instruction
  std::vector<Node> nodes_;
  std::vector<std::int32_t> predecessors_, successors_, clocked_, last_;  // nodes
  std::vector<State> state_;
  std::vector<TimePs> tail_ps_;  // (num_instructions): the longest path from an end to the end of all
  Outcome outcome_;
  std::vector<std::uint64_t> dirty_, dirty_tails_;  // a bit per node
  std::size_t first_dirty_ = 0;
  std::int32_t last_set_ = 0;   // the last node that the move in progress has given another clock or way to it
  std::vector<Before> before_;  // what the move in progress overwrote
  std::mt19937 random_;
};

}  // namespace perseus
