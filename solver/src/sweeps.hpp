// Plans for many deadlines annealed together, when clock changes take time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "annealing.hpp"
#include "candidates.hpp"
#include "meter.hpp"
#include "perseus/graph.hpp"
#include "perseus/menu.hpp"

namespace perseus {

// Plans for neighbouring deadlines differ in little. So a state walks from deadline to deadline, down and up along them while it
// cools, and what it finds on its way counts for every deadline that it keeps. Blocks of deadlines go to threads, cut elsewhere in
// each pass; the plans depend on no thread.
class Sweeps {
 public:
  static constexpr int kPasses = 8;

  struct Deadline {
    Annealing::Target target;
    std::int64_t num_moves;  // in a pass
  };

  // All must outlive it. `deadlines` fall.
  Sweeps(const Graph& graph, const Menu& menu, std::span<const TimePs> latency_ps, double worth_of_change_uj,
         std::vector<Deadline> deadlines);

  // [moves] of a pass over all deadlines.
  [[nodiscard]] std::int64_t num_moves() const;

  // Improves the candidates, one for each deadline, which may be late where none on time is known. Passes are numbered from 0;
  // the meter counts their moves. Returns false if progress cancels.
  bool pass(int number, std::vector<Candidate>& candidates, Meter& meter) const;

 private:
  const Graph& graph_;
  const Menu& menu_;
  std::span<const TimePs> latency_ps_;
  double worth_of_change_uj_;
  std::vector<Deadline> deadlines_;
  std::vector<TimePs> time_ps_;  // (num_deadlines)
};

}  // namespace perseus
