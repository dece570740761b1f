/* The part of NVML's interface that this library has. With PERSEUS_SIM_NVML_H defined NVIDIA's own header is used
 * instead, so that a compiler finds every function whose prototype differs from the real one. */
#ifndef PERSEUS_SIM_NVML_TYPES_H
#define PERSEUS_SIM_NVML_TYPES_H

#ifdef PERSEUS_SIM_NVML_H
#include <nvml.h>
#else

typedef struct nvmlDevice_st *nvmlDevice_t;

typedef enum {
  NVML_SUCCESS = 0,
  NVML_ERROR_UNINITIALIZED = 1,
  NVML_ERROR_INVALID_ARGUMENT = 2,
  NVML_ERROR_NOT_SUPPORTED = 3,
  NVML_ERROR_NO_PERMISSION = 4,
  NVML_ERROR_NOT_FOUND = 6,
  NVML_ERROR_INSUFFICIENT_SIZE = 7,
  NVML_ERROR_DRIVER_NOT_LOADED = 9,
  NVML_ERROR_TIMEOUT = 10,
  NVML_ERROR_LIBRARY_NOT_FOUND = 12,
  NVML_ERROR_FUNCTION_NOT_FOUND = 13,
  NVML_ERROR_GPU_IS_LOST = 15,
  NVML_ERROR_RESET_REQUIRED = 16,
  NVML_ERROR_IN_USE = 19,
  NVML_ERROR_MEMORY = 20,
  NVML_ERROR_NO_DATA = 21,
  NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25,
  NVML_ERROR_UNKNOWN = 999
} nvmlReturn_t;

typedef enum { NVML_CLOCK_GRAPHICS = 0, NVML_CLOCK_SM = 1, NVML_CLOCK_MEM = 2, NVML_CLOCK_VIDEO = 3 } nvmlClockType_t;
typedef enum { NVML_CLOCK_ID_CURRENT = 0 } nvmlClockId_t;
typedef enum { NVML_TEMPERATURE_GPU = 0 } nvmlTemperatureSensors_t;
typedef enum { NVML_FEATURE_DISABLED = 0, NVML_FEATURE_ENABLED = 1 } nvmlEnableState_t;
typedef enum { NVML_PSTATE_0 = 0, NVML_PSTATE_8 = 8 } nvmlPstates_t;
typedef enum { NVML_PERF_POLICY_POWER = 0, NVML_PERF_POLICY_THERMAL = 1 } nvmlPerfPolicyType_t;
typedef enum { NVML_VALUE_TYPE_UNSIGNED_INT = 1, NVML_VALUE_TYPE_UNSIGNED_LONG_LONG = 3 } nvmlValueType_t;
typedef unsigned int nvmlDeviceArchitecture_t;

typedef union {
  double dVal;
  int siVal;
  unsigned int uiVal;
  unsigned long ulVal;
  unsigned long long ullVal;
  signed long long sllVal;
  unsigned short usVal;
} nvmlValue_t;

typedef struct {
  unsigned int fieldId, scopeId;
  long long timestamp, latencyUsec;
  nvmlValueType_t valueType;
  nvmlReturn_t nvmlReturn;
  nvmlValue_t value;
} nvmlFieldValue_t;

typedef struct {
  unsigned int pid;
  unsigned long long usedGpuMemory;
  unsigned int gpuInstanceId, computeInstanceId;
} nvmlProcessInfo_t;

typedef struct {
  unsigned long long referenceTime, violationTime;
} nvmlViolationTime_t;

typedef struct {
  unsigned int gpu, memory;
} nvmlUtilization_t;

typedef struct {
  unsigned long long total, free, used;
} nvmlMemory_t;

typedef struct {
  char busIdLegacy[16];
  unsigned int domain, bus, device, pciDeviceId, pciSubSystemId;
  char busId[32];
} nvmlPciInfo_t;

typedef struct {
  unsigned int version;
  nvmlTemperatureSensors_t sensorType;
  int temperature;
} nvmlTemperature_t;

typedef struct {
  unsigned int mask[8];
} nvmlMask255_t;

typedef struct {
  unsigned int version;
  nvmlMask255_t perfProfilesMask, requestedProfilesMask, enforcedProfilesMask;
} nvmlWorkloadPowerProfileCurrentProfiles_t;

#define nvmlWorkloadPowerProfileCurrentProfiles_v1 \
  (unsigned int)(sizeof(nvmlWorkloadPowerProfileCurrentProfiles_t) | (1u << 24))
#define nvmlTemperature_v1 (unsigned int)(sizeof(nvmlTemperature_t) | (1u << 24))

#endif

/* Numbers of fields, of CUDA 13's drivers; those of 269 to 271 were others before (251 to 253 in CUDA 12.9). */
enum {
  FIELD_POWER_POLICY_NS = 74,
  FIELD_THERMAL_POLICY_NS = 75,
  FIELD_ENERGY_MJ = 83,
  FIELD_POWER_AVERAGE_MW = 185,
  FIELD_POWER_INSTANT_MW = 186,
  FIELD_SW_THERMAL_NS = 269,
  FIELD_HW_THERMAL_NS = 270,
  FIELD_POWER_BRAKE_NS = 271,
};

#endif
