// Local search for plans whose clock changes take time.
#pragma once

#include <cstdint>
#include <functional>
#include <random>
#include <span>
#include <vector>

#include "candidates.hpp"
#include "perseus/graph.hpp"
#include "perseus/menu.hpp"
#include "perseus/replay.hpp"

namespace perseus {

// Simulated annealing over the clocks of single instructions, of runs of equal clocks, and of pairs. A move is replayed only
// from where it changes something to where nothing changes any more. Being late is allowed at a price on the way, never in the
// result. Repeatable: the same call gives the same plan. One object per thread.
class Annealing {
 public:
  // `worth_of_change_uj`: what a clock change must save to be made.
  Annealing(const Graph& graph, const Menu& menu, std::span<const TimePs> latency_ps, double worth_of_change_uj);

  // The best plan found that is on time, or `start` if that is late and none was found.
  // `price_uw`: what a plan may save by being a little late, about the slope of the frontier there. `go_on` is called every few
  // thousand moves with the number of them, and at the end; once it returns false the result is worth nothing.
  Candidate run(const Candidate& start, TimePs deadline_ps, PowerUw price_uw, std::int64_t num_moves,
                const std::function<bool(std::int64_t)>& go_on);

  // Energy with the worth of its changes added.
  [[nodiscard]] double cost(const Outcome& outcome) const {
    return static_cast<double>(outcome.effective_uj) + worth_of_change_uj_ * outcome.num_changes;
  }

 private:
  struct Before {
    std::int32_t i, clock;
    TimePs start_ps, end_ps;
    EnergyUj effective_uj;
  };

  void reset(const Plan& plan);
  void set_clock(std::int32_t i, std::int32_t clock);
  // The same, with all of the neighbours on its rank that no change can come between: they are shorter than the latency.
  void set_stretch(std::int32_t i, std::int32_t clock);
  [[nodiscard]] bool can_change_at(std::int32_t i) const;
  void propose();
  void move_run(std::int32_t i, std::int32_t step);
  void replay_dirty();
  void undo();
  void mark(std::int32_t i) {
    const auto position = static_cast<std::size_t>(position_[i]);
    dirty_[position / 64] |= std::uint64_t{1} << (position % 64);
    first_dirty_ = std::min(first_dirty_, position / 64);
  }
  std::int32_t draw(std::int32_t below) {
    return static_cast<std::int32_t>((static_cast<std::uint64_t>(random_()) * static_cast<std::uint64_t>(below)) >> 32);
  }

  const Graph& graph_;
  const Menu& menu_;
  Replay replay_;  // its arrays hold the current state
  double worth_of_change_uj_;
  double mean_effective_uj_ = 0;
  std::vector<std::int32_t> position_, next_clocked_, clocked_, last_;
  Plan plan_;
  Outcome outcome_;
  std::vector<std::uint64_t> dirty_;  // a bit per position in the topological order
  std::size_t first_dirty_ = 0;
  std::vector<Before> before_;  // what the move in progress overwrote
  std::mt19937 random_;
};

}  // namespace perseus
