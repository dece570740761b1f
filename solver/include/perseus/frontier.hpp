// The exact time-energy frontier of one pipeline iteration.
//
// Minimise sum_i c_i(d_i) subject to precedence and makespan <= T, for every T at once. c_i is convex, piecewise linear and
// falling: instruction i may last any time from the first to the last vertex of its hull. The dual is a min-cost flow whose
// value is -dE/dT and whose longest residual path has length T (Phillips & Dessouky 1977; Perseus, SOSP '24, section 4).
// How the trace works: ARCHITECTURE.md, "The solver".
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "perseus/types.hpp"

namespace perseus {

// A DAG of instructions, each with the convex hull of its curve. The spans must outlive the solve.
struct FrontierProblem {
  std::span<const std::int32_t> hull_begin;  // (num_curves + 1): where each curve's slice of the hulls begins
  std::span<const TimePs> hull_ps;           // (num_vertices): durations of the hull's vertices, ascending in a slice
  std::span<const PowerUw> slope_uw;         // (num_vertices): energy saved per time from this vertex to the next one,
                                             // falling in a slice, 0 at its end
  std::span<const std::int32_t> curve_of;    // (num_instructions)
  std::span<const std::int32_t> edge_from;   // (num_edges): precedence
  std::span<const std::int32_t> edge_to;     // (num_edges)
};

// At which iteration times the solution itself, and not its energy alone, is wanted.
struct Sampling {
  PowerUw blocking_uw = 0;                // of all GPUs; t_star is the time at which the frontier's slope passes it
  std::int32_t num_to_t_star = 0;         // from t_star to t_min, both included; closer together towards t_min
  std::int32_t num_beyond = 0;            // even steps from t_max down to t_min; those above t_star are taken
  std::span<const TimePs> extra_ps = {};  // more times, descending; those outside [t_min, t_max] are passed over
};

// How far below the frontier a bound may lie that is traced faster than the frontier itself.
struct Tolerance {
  double share = 1e-4;    // of the total energy: least_uj, what is above it, and waiting at Sampling::blocking_uw
  EnergyUj least_uj = 0;  // of all instructions at their cheapest
};

// An optimal solution at one iteration time; spans into FrontierResult::sample_values.
struct Sample {
  TimePs time_ps = 0;
  std::span<const TimePs> start_ps;   // (num_instructions)
  std::span<const TimePs> end_ps;     // (num_instructions): the instruction may use all the time between start and end
  std::span<const PowerUw> price_uw;  // (num_instructions): what its time is worth: energy the iteration saves per unit of it
  PowerUw slope_uw = 0;               // of the frontier: the prices are a flow of this value through the DAG
  std::span<const PowerUw> flow_uw;   // (num_edges): the same on each edge, as Graph::predecessors has them; exact traces only
};

struct FrontierResult {
  FrontierResult() = default;
  FrontierResult(FrontierResult&&) = default;  // the spans stay valid
  FrontierResult& operator=(FrontierResult&&) = default;

  // Vertices, descending time. From vertex k to vertex k + 1 energy rises by slope_uw[k] per unit of time; the last slope is 0.
  std::vector<TimePs> time_ps;
  std::vector<PowerUw> slope_uw;
  std::vector<EnergyAj> energy_aj;  // above that of vertex 0, where every instruction is at its cheapest
  std::vector<Sample> samples;      // descending time
  std::vector<std::int64_t> sample_values;
  TimePs t_star_ps = 0;
  std::int64_t num_augmentations = 0;
  std::int64_t num_moves = 0;  // times that a vertex changed between standing still and sliding
  double share_below = 0;      // of the total energy, at most, that the frontier lies above these vertices; 0: they are exact
  bool cancelled = false;
};

// Throws std::invalid_argument for arrays that do not describe a problem, naming the index.
FrontierResult solve_frontier(const FrontierProblem& problem, const Sampling& sampling, const Progress& progress = {});

// The same to a tolerance, for large pipelines: a convex bound from below that share_below of the total energy separates at
// most from a schedule, at every time; samples are schedules within that share. Not exact, but every figure is certified in
// whole numbers: ARCHITECTURE.md, "To a tolerance".
FrontierResult solve_frontier_within(const FrontierProblem& problem, const Sampling& sampling, const Tolerance& tolerance,
                                     const Progress& progress = {});

}  // namespace perseus
