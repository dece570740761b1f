// Arrays that do not describe a problem are refused before anything is solved.
#pragma once

#include "perseus/frontier.hpp"

namespace perseus {

// Throws std::invalid_argument, naming the index.
void check(const FrontierProblem& problem);

}  // namespace perseus
