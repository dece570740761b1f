/* NVML: power, energy, temperature, and counters of throttling. */
#define _GNU_SOURCE
#include "session.h"

enum { BIT_POWER_CAP = 2, BIT_SW_THERMAL = 5, BIT_HW_THERMAL = 6, BIT_POWER_BRAKE = 7 };

SIM_EXPORT nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t device, unsigned long long *energy_mj) {
  ENTER(device);
  NEED(energy_mj);
  sim_lock(call.machine);
  *energy_mj = sim_counter_mj(call.gpu, call.machine->sim_ns);
  sim_unlock(call.machine);
  return NVML_SUCCESS;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned int *power_mw) {
  ENTER(device);
  NEED(power_mw);
  sim_lock(call.machine);
  *power_mw = (unsigned int)sim_average_power_at(call.gpu, call.machine->sim_ns);
  sim_unlock(call.machine);
  return NVML_SUCCESS;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetPowerManagementLimit(nvmlDevice_t device, unsigned int *limit_mw) {
  ENTER(device);
  NEED(limit_mw);
  *limit_mw = call.gpu->power_limit_mw;
  return NVML_SUCCESS;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t device, unsigned int *limit_mw) {
  return nvmlDeviceGetPowerManagementLimit(device, limit_mw);
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetPowerManagementDefaultLimit(nvmlDevice_t device, unsigned int *limit_mw) {
  ENTER(device);
  NEED(limit_mw);
  *limit_mw = call.gpu->preset.default_power_limit_mw;
  return NVML_SUCCESS;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetPowerManagementLimitConstraints(nvmlDevice_t device, unsigned int *min_mw,
                                                                     unsigned int *max_mw) {
  ENTER(device);
  NEED(min_mw && max_mw);
  *min_mw = call.gpu->preset.min_power_limit_mw;
  *max_mw = call.gpu->preset.max_power_limit_mw;
  return NVML_SUCCESS;
}

/* An operator's tool may call this; perseus-dist never does, and the log of calls shows it to tests. */
SIM_EXPORT nvmlReturn_t nvmlDeviceSetPowerManagementLimit(nvmlDevice_t device, unsigned int limit_mw) {
  ENTER(device);
  const struct sim_preset *preset = &call.gpu->preset;
  nvmlReturn_t result = NVML_SUCCESS;
  if (limit_mw < preset->min_power_limit_mw || limit_mw > preset->max_power_limit_mw)
    result = NVML_ERROR_INVALID_ARGUMENT;
  if (!nvml_may_set(call.machine)) result = NVML_ERROR_NO_PERMISSION;
  sim_lock(call.machine);
  if (result == NVML_SUCCESS) {
    call.gpu->power_limit_mw = limit_mw;
    sim_refresh(call.gpu, call.machine->sim_ns);
  }
  sim_log_call(call.machine, __func__, call.index, limit_mw, limit_mw, (int)result);
  sim_unlock(call.machine);
  return result;
}

static nvmlMask255_t mask_of(uint64_t bits) {
  return (nvmlMask255_t){{(unsigned int)bits, (unsigned int)(bits >> 32)}};
}

/* Profiles are told and change nothing: what they do to power and clocks NVIDIA has not published. */
SIM_EXPORT nvmlReturn_t nvmlDeviceWorkloadPowerProfileGetCurrentProfiles(
    nvmlDevice_t device, nvmlWorkloadPowerProfileCurrentProfiles_t *profiles) {
  ENTER(device);
  NEED(profiles);
  if (profiles->version != nvmlWorkloadPowerProfileCurrentProfiles_v1) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  if (!call.gpu->has_power_profiles) return NVML_ERROR_NOT_SUPPORTED;
  sim_lock(call.machine);
  profiles->perfProfilesMask = mask_of(UINT64_MAX);
  profiles->requestedProfilesMask = mask_of(call.gpu->requested_profiles);
  profiles->enforcedProfilesMask = mask_of(call.gpu->enforced_profiles);
  sim_unlock(call.machine);
  return NVML_SUCCESS;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, nvmlTemperatureSensors_t sensor,
                                                 unsigned int *temperature_c) {
  ENTER(device);
  NEED(temperature_c);
  if (sensor != NVML_TEMPERATURE_GPU) return NVML_ERROR_INVALID_ARGUMENT;
  *temperature_c = call.gpu->temperature_c;
  return NVML_SUCCESS;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t device, nvmlTemperature_t *temperature) {
  ENTER(device);
  NEED(temperature);
  if (temperature->version != nvmlTemperature_v1) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  if (temperature->sensorType != NVML_TEMPERATURE_GPU) return NVML_ERROR_INVALID_ARGUMENT;
  temperature->temperature = (int)call.gpu->temperature_c;
  return NVML_SUCCESS;
}

static double reason_ns(const struct nvml_call *call, int bit) {
  sim_integrate(call->gpu, call->machine->sim_ns);
  return call->gpu->reason_ns[bit];
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetViolationStatus(nvmlDevice_t device, nvmlPerfPolicyType_t policy,
                                                     nvmlViolationTime_t *violation) {
  ENTER(device);
  NEED(violation);
  if (policy != NVML_PERF_POLICY_POWER && policy != NVML_PERF_POLICY_THERMAL) return NVML_ERROR_NOT_SUPPORTED;
  sim_lock(call.machine);
  violation->referenceTime = call.machine->sim_ns / 1000;
  violation->violationTime =
      (unsigned long long)reason_ns(&call, policy == NVML_PERF_POLICY_POWER ? BIT_POWER_CAP : BIT_SW_THERMAL);
  sim_unlock(call.machine);
  return NVML_SUCCESS;
}

static void set_ull(nvmlFieldValue_t *field, double value) {
  field->valueType = NVML_VALUE_TYPE_UNSIGNED_LONG_LONG;
  field->value.ullVal = (unsigned long long)value;
}

static void set_uint(nvmlFieldValue_t *field, double value) {
  field->valueType = NVML_VALUE_TYPE_UNSIGNED_INT;
  field->value.uiVal = (unsigned int)value;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *fields) {
  ENTER(device);
  NEED(fields);
  if (count < 1) return NVML_ERROR_INVALID_ARGUMENT;
  sim_lock(call.machine);
  for (nvmlFieldValue_t *field = fields; field < fields + count; field++) {
    field->timestamp = (long long)(call.machine->sim_ns / 1000);
    field->latencyUsec = 0;
    field->nvmlReturn = NVML_SUCCESS;
    switch (field->fieldId) {
      case FIELD_ENERGY_MJ: set_ull(field, (double)sim_counter_mj(call.gpu, call.machine->sim_ns)); break;
      case FIELD_POWER_AVERAGE_MW: set_uint(field, sim_average_power_at(call.gpu, call.machine->sim_ns)); break;
      case FIELD_POWER_INSTANT_MW: set_uint(field, call.gpu->power_mw); break;
      case FIELD_POWER_POLICY_NS: set_ull(field, reason_ns(&call, BIT_POWER_CAP)); break;
      case FIELD_THERMAL_POLICY_NS:
      case FIELD_SW_THERMAL_NS: set_ull(field, reason_ns(&call, BIT_SW_THERMAL)); break;
      case FIELD_HW_THERMAL_NS: set_ull(field, reason_ns(&call, BIT_HW_THERMAL)); break;
      case FIELD_POWER_BRAKE_NS: set_ull(field, reason_ns(&call, BIT_POWER_BRAKE)); break;
      default: field->nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
    }
  }
  sim_unlock(call.machine);
  return NVML_SUCCESS;
}
