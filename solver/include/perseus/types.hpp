// Units of the solver. 1 uW * 1 ps = 1e-18 J, so energies are summed in 128 bits.
#pragma once

#include <cstdint>
#include <functional>

namespace perseus {

using TimePs = std::int64_t;
using PowerUw = std::int64_t;
using EnergyUj = std::int64_t;
__extension__ using EnergyAj = __int128;  // attojoules: 1 uW * 1 ps
inline constexpr EnergyAj kAjPerUj = 1'000'000'000'000;

// Called every few hundredths of a second with the share of the work done, 0 to 1; returning false cancels.
using Progress = std::function<bool(double done)>;

}  // namespace perseus
