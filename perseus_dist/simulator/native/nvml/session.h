/* What every NVML function begins with. */
#ifndef PERSEUS_SIM_NVML_SESSION_H
#define PERSEUS_SIM_NVML_SESSION_H

#include "machine.h"
#include "types.h"

struct nvml_call {
  struct sim_machine *machine;
  struct sim_gpu *gpu;
  uint32_t index;
  bool is_mig;       /* the handle is that of the GPU's MIG instance */
  bool is_ignored;   /* a fault says: answer success and do nothing */
  uint64_t delay_us; /* a fault's delay; in wall time it is over when the call begins */
};

nvmlReturn_t nvml_enter(const char *function, nvmlDevice_t device, struct nvml_call *call);
nvmlReturn_t nvml_enter_any(const char *function, nvmlDevice_t device,
                            struct nvml_call *call); /* also with a MIG handle */
nvmlReturn_t nvml_enter_system(const char *function, struct sim_machine **machine);
bool nvml_may_set(const struct sim_machine *machine); /* root and the user who made the machine */
nvmlReturn_t nvml_copy_text(const char *text, char *target, unsigned int size);

#define ENTER(device)                                                 \
  struct nvml_call call;                                              \
  do {                                                                \
    nvmlReturn_t entered_ = nvml_enter(__func__, device, &call);      \
    if (entered_ != NVML_SUCCESS || call.is_ignored) return entered_; \
  } while (0)

#define NEED(pointer) \
  if (!(pointer)) return NVML_ERROR_INVALID_ARGUMENT

#endif
