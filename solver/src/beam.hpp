// Rounding a relaxed solution by beam search on its exact dual.
//
// With prices p and flows f of the relaxed solution at T, a plan that starts everything as early as it can lies above the bound by
//
//   sum over instructions of  e(k) + p d(k) - min over choices of the same        (what its choice costs at that price)
// + sum over edges of         f x (start of the later one - end of the earlier one)   (what waiting costs)
//
// and both are known as soon as an instruction has its clock, so that partial plans can be held against each other.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "choices.hpp"
#include "perseus/frontier.hpp"
#include "perseus/replay.hpp"

namespace perseus {

// Works on choices, as Rounding does. One object per thread.
class Beam {
 public:
  Beam(const Graph& graph, const Menu& menu, const Choices& choices, std::int32_t width);

  // Takes the instructions in the order of time and keeps the partial plans that have lost least, each instruction ending by its
  // `latest_end_ps`. Returns complete plans in time, the best first; none where the sample has no flows.
  std::vector<Plan>& cross(const Sample& sample, std::span<const TimePs> latest_end_ps, std::span<const Plan* const> parents,
                           std::size_t num_plans);

 private:
  struct Child {
    double cost_uj;
    TimePs end_ps;
    std::int32_t parent;
    std::int32_t choice;
  };
  struct Option {
    double cost_uj;
    std::int32_t choice;
  };

  void prepare(const Sample& sample);
  void add_options(std::int32_t i, PowerUw price_uw, std::span<const Plan* const> parents);
  void keep_best();

  const Graph& graph_;
  const Menu& menu_;
  const Choices& choices_;
  std::size_t width_;
  std::vector<std::int32_t> order_, slot_, waiting_;  // (num_instructions)
  std::vector<std::int32_t> free_slots_, best_;
  std::size_t num_slots_ = 0;
  std::vector<Option> options_;
  std::vector<Child> children_;
  std::vector<double> cost_uj_, next_cost_uj_;  // (width)
  std::vector<TimePs> end_ps_, next_end_ps_;    // (width, num_slots): ends that successors still wait for
  std::vector<std::int32_t> parent_, choice_;   // (num_instructions, width)
  std::vector<Plan> plans_;
};

}  // namespace perseus
