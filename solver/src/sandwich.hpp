// The frontier between two convex functions that schedules and flows certify, whoever proposed them.
//
// Schedules: the energy of one that ends within T is above the frontier, and so is every mean of two.
// Flows: for prices f that are a flow of value F from the first instructions to the last, and durations d whose longest path is
// at most T, sum(f * d) <= F * T, hence sum(c(d)) >= sum(min over d of (c(d) + f * d)) - F * T: a line below the frontier.
#pragma once

#include <vector>

#include "perseus/frontier.hpp"

namespace perseus {

// A mean counts so many optimal solutions, of a coarser problem at neighbouring times; sums are kept in its place.
inline constexpr std::int64_t kSolutionsInMean = 8;

// A schedule and a flow. Sums are of kSolutionsInMean solutions.
struct Proposal {
  TimePs time_ps = 0;                // the schedule ends within it
  EnergyAj upper_aj = 0;             // of the schedule
  EnergyAj line_sum_aj = 0;          // the line at time 0, times kSolutionsInMean
  PowerUw slope_sum_uw = 0;          // of the flow
  std::vector<std::int64_t> values;  // (3 * num_instructions): starts, ends, prices, as of Sample
};

// Energies of the problem's hulls, each above its least.
class HullCosts {
 public:
  explicit HullCosts(const FrontierProblem& problem);  // its spans must outlive this

  // A proposal made of sums of solutions: times at which they end, slopes, and (3 * num_instructions) values.
  [[nodiscard]] Proposal propose(TimePs time_sum_ps, PowerUw slope_sum_uw, std::span<const std::int64_t> sums) const;
  [[nodiscard]] EnergyAj energy_aj(std::int32_t curve, TimePs duration_ps) const;

 private:
  [[nodiscard]] EnergyAj least_sum_aj(std::int32_t curve, PowerUw price_sum_uw) const;

  const FrontierProblem& problem_;
  std::vector<EnergyAj> energy_aj_;  // (num_vertices)
};

// What the proposals of all traces say together.
struct Sandwich {
  std::vector<TimePs> time_ps;       // the bound from below as FrontierResult has it: its vertices
  std::vector<PowerUw> slope_uw;     // the same
  std::vector<EnergyAj> energy_aj;   // the same
  std::vector<std::size_t> on_hull;  // schedules that the bound from above joins, descending time

  struct Gap {
    TimePs time_ps;
    double share;
  };
  std::vector<Gap> gaps;  // between both bounds where one has a vertex, descending time; the largest is among them

  // Shares are those of the total energy: least_uj, what is above it, and waiting at blocking_uw. One proposal must be the
  // schedule of no energy, one must end at t_min_ps.
  Sandwich(std::span<const Proposal> proposals, TimePs t_min_ps, EnergyUj least_uj, PowerUw blocking_uw);

  [[nodiscard]] double worst_share() const;
};

}  // namespace perseus
