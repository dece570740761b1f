/* CUDA: streams (one per GPU), events, and writes into host memory in the order of the stream. */
#define _GNU_SOURCE
#include "session.h"

#include <errno.h>

/* The GPU of a stream; the default streams (0, 1, 2) are those of the current context. -1: no such stream. */
static int stream_gpu(const struct sim_machine *machine, CUstream stream) {
  uintptr_t handle = (uintptr_t)stream;
  if (handle <= 2) return cuda_current_gpu();
  return handle - CUDA_STREAM_HANDLE < machine->num_gpus ? (int)(handle - CUDA_STREAM_HANDLE) : -1;
}

static bool split_event(const struct sim_machine *machine, CUevent event, uint32_t *gpu, uint32_t *slot) {
  uint64_t handle = (uint64_t)(uintptr_t)event - CUDA_EVENT_HANDLE;
  *gpu = (uint32_t)(handle / SIM_NUM_TIMESTAMPS);
  *slot = (uint32_t)(handle % SIM_NUM_TIMESTAMPS);
  return handle / SIM_NUM_TIMESTAMPS < machine->num_gpus && machine->gpus[*gpu].timestamps[*slot].owner_pid != 0;
}

static void wait_for_room(struct sim_machine *machine, uint32_t gpu) {
  uint64_t num_enqueued = machine->gpus[gpu].num_enqueued;
  if (num_enqueued >= SIM_QUEUE_SIZE)
    while (sim_wait(machine, gpu, num_enqueued - SIM_QUEUE_SIZE + 1, SIM_NEVER) == EINTR) {
    }
}

SIM_EXPORT CUresult cuStreamCreate(CUstream *stream, unsigned int flags) {
  (void)flags;
  ENTER(cuda_current_gpu());
  (void)machine;
  if (cuda_current_gpu() < 0) return CUDA_ERROR_INVALID_CONTEXT;
  *stream = (CUstream)(uintptr_t)(CUDA_STREAM_HANDLE + cuda_current_gpu());
  return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuStreamDestroy_v2(CUstream stream) {
  ENTER(-1);
  return stream_gpu(machine, stream) < 0 ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

static CUresult query(struct sim_machine *machine, int gpu) {
  sim_lock(machine);
  bool is_done = machine->gpus[gpu].num_completed == machine->gpus[gpu].num_enqueued;
  sim_unlock(machine);
  return is_done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

SIM_EXPORT CUresult cuStreamQuery(CUstream stream) {
  ENTER(-1);
  int gpu = stream_gpu(machine, stream);
  return gpu < 0 ? CUDA_ERROR_INVALID_HANDLE : query(machine, gpu);
}

/* No stream here ever records a graph; an injected fault says otherwise. */
SIM_EXPORT CUresult cuStreamIsCapturing(CUstream stream, int *status) {
  ENTER(-1);
  *status = 0;
  return stream_gpu(machine, stream) < 0 ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuStreamSynchronize(CUstream stream) {
  ENTER(-1);
  int gpu = stream_gpu(machine, stream);
  if (gpu < 0) return CUDA_ERROR_INVALID_HANDLE;
  uint64_t num_enqueued = machine->gpus[gpu].num_enqueued;
  int result;
  while ((result = sim_wait(machine, (uint32_t)gpu, num_enqueued, SIM_NEVER)) == EINTR) {
  }
  return result == 0 ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY; /* the latter in virtual time only */
}

SIM_EXPORT CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr address, uint32_t value, unsigned int flags) {
  (void)flags;
  ENTER(-1);
  int gpu = stream_gpu(machine, stream);
  if (gpu < 0) return CUDA_ERROR_INVALID_HANDLE;
  uint64_t offset;
  int page = address % 4 == 0 ? cuda_find_page(address, 4, &offset) : -1;
  if (page < 0) return CUDA_ERROR_INVALID_VALUE;
  uint64_t generation = machine->pages[page].generation;
  struct sim_op op = {
      .kind = SIM_OP_WRITE, .target = (uint32_t)page, .value = generation << 32 | value, .offset = offset};
  for (;;) {
    sim_lock(machine);
    int result = sim_enqueue(machine, (uint32_t)gpu, op);
    sim_unlock(machine);
    if (result == 0) return CUDA_SUCCESS;
    if (machine->is_virtual) return CUDA_ERROR_OUT_OF_MEMORY;
    wait_for_room(machine, (uint32_t)gpu);
  }
}

SIM_EXPORT CUresult cuStreamWriteValue32(CUstream stream, CUdeviceptr address, uint32_t value, unsigned int flags) {
  return cuStreamWriteValue32_v2(stream, address, value, flags);
}

/* ---------------------------------------------------------------- events */

SIM_EXPORT CUresult cuEventCreate(CUevent *event, unsigned int flags) {
  (void)flags;
  ENTER(cuda_current_gpu());
  int gpu = cuda_current_gpu();
  if (gpu < 0) return CUDA_ERROR_INVALID_CONTEXT;
  sim_lock(machine);
  int slot = sim_new_timestamp(machine, (uint32_t)gpu);
  sim_unlock(machine);
  if (slot < 0) return CUDA_ERROR_OUT_OF_MEMORY;
  *event = (CUevent)(uintptr_t)(CUDA_EVENT_HANDLE + (uint64_t)gpu * SIM_NUM_TIMESTAMPS + (uint64_t)slot);
  return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuEventDestroy_v2(CUevent event) {
  ENTER(-1);
  uint32_t gpu, slot;
  if (!split_event(machine, event, &gpu, &slot)) return CUDA_ERROR_INVALID_HANDLE;
  sim_lock(machine);
  sim_free_timestamp(machine, gpu, slot);
  sim_unlock(machine);
  return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuEventRecord(CUevent event, CUstream stream) {
  ENTER(-1);
  uint32_t gpu, slot;
  if (!split_event(machine, event, &gpu, &slot) || stream_gpu(machine, stream) != (int)gpu)
    return CUDA_ERROR_INVALID_HANDLE;
  for (;;) {
    sim_lock(machine);
    int result = sim_record_timestamp(machine, gpu, slot);
    sim_unlock(machine);
    if (result == 0) return CUDA_SUCCESS;
    if (machine->is_virtual) return CUDA_ERROR_OUT_OF_MEMORY;
    wait_for_room(machine, gpu);
  }
}

static CUresult event_time(struct sim_machine *machine, CUevent event, uint64_t *time_ns) {
  uint32_t gpu, slot;
  if (!split_event(machine, event, &gpu, &slot)) return CUDA_ERROR_INVALID_HANDLE;
  sim_lock(machine);
  int result = sim_timestamp_ns(machine, gpu, slot, time_ns);
  sim_unlock(machine);
  if (result == EAGAIN) return CUDA_ERROR_NOT_READY;
  return result == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

SIM_EXPORT CUresult cuEventQuery(CUevent event) {
  ENTER(-1);
  uint64_t time_ns;
  CUresult result = event_time(machine, event, &time_ns);
  uint32_t gpu, slot;
  bool is_unrecorded = result == CUDA_ERROR_INVALID_HANDLE && split_event(machine, event, &gpu, &slot);
  return is_unrecorded ? CUDA_SUCCESS : result; /* as CUDA has it: nothing recorded, nothing to wait for */
}

static CUresult elapsed(struct sim_machine *machine, float *time_ms, CUevent start, CUevent end) {
  uint64_t start_ns, end_ns;
  CUresult result = event_time(machine, start, &start_ns);
  if (result == CUDA_SUCCESS) result = event_time(machine, end, &end_ns);
  if (result == CUDA_SUCCESS) *time_ms = (float)((double)((int64_t)(end_ns - start_ns)) * 1e-6);
  return result;
}

SIM_EXPORT CUresult cuEventElapsedTime(float *time_ms, CUevent start, CUevent end) {
  ENTER(-1);
  return elapsed(machine, time_ms, start, end);
}

SIM_EXPORT CUresult cuEventElapsedTime_v2(float *time_ms, CUevent start, CUevent end) {
  ENTER(-1);
  return elapsed(machine, time_ms, start, end);
}
