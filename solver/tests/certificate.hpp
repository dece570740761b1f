// Proof that a traced frontier is right, in integers and without the solver's own machinery.
#pragma once

#include "problems.hpp"

namespace perseus::test {

// Energy of the frontier at a time within it, above that of its slow end.
EnergyAj energy_at(const FrontierResult& frontier, TimePs time_ps);

// Checks that times fall, slopes rise, energies follow from both, and the ends are the longest paths of the slowest and the
// fastest choices.
void check_shape(const Problem& problem, const FrontierResult& frontier);

// Checks that a sample is a feasible schedule with the frontier's energy, and that no schedule has less.
//
// Prices f are a flow of value F from the first instructions to the last. For durations d whose longest path is at most T,
// sum(f * d) <= F * T, hence sum(c(d)) >= sum(min over d of (c(d) + f * d)) - F * T. The sample attains this with equality.
void certify(const Problem& problem, const FrontierResult& frontier, const Sample& sample);

// Certifies a frontier everywhere: solves again with samples at all its vertices and in the middle of all its pieces.
void certify_everywhere(const Problem& problem);

// Least energy over all integer durations within a time, above that of the cheapest choices; one of them is optimal, because
// the constraints are those of a network. Takes (durations) ^ (instructions) steps. Negative: nothing is within it.
EnergyAj least_energy_by_enumeration(const Problem& problem, TimePs time_ps);

}  // namespace perseus::test
