/* The part of CUDA's driver interface that this library has, and what its files share. */
#ifndef PERSEUS_SIM_CUDA_SESSION_H
#define PERSEUS_SIM_CUDA_SESSION_H

#include "machine.h"

typedef enum {
  CUDA_SUCCESS = 0,
  CUDA_ERROR_INVALID_VALUE = 1,
  CUDA_ERROR_OUT_OF_MEMORY = 2,
  CUDA_ERROR_NOT_INITIALIZED = 3,
  CUDA_ERROR_NO_DEVICE = 100,
  CUDA_ERROR_INVALID_DEVICE = 101,
  CUDA_ERROR_INVALID_CONTEXT = 201,
  CUDA_ERROR_INVALID_HANDLE = 400,
  CUDA_ERROR_NOT_READY = 600,
  CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED = 712,
  CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED = 713,
  CUDA_ERROR_NOT_SUPPORTED = 801,
  CUDA_ERROR_UNKNOWN = 999
} CUresult;

typedef int CUdevice;
typedef uint64_t CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct {
  char bytes[16];
} CUuuid;

/* Handles say which GPU (and event) they are of. */
enum { CUDA_STREAM_HANDLE = 0x51A10000, CUDA_CONTEXT_HANDLE = 0x51A20000 };
#define CUDA_EVENT_HANDLE UINT64_C(0x51A300000000)

/* The machine, after cuInit; an injected fault comes first. NULL with *result set when the call must not go on. */
struct sim_machine *cuda_enter(const char *function, int gpu, CUresult *result);
int cuda_current_gpu(void); /* of this thread's context; -1: none */
int cuda_find_page(uint64_t address, uint64_t size, uint64_t *offset);

#define ENTER(gpu)                                                    \
  CUresult entered_;                                                  \
  struct sim_machine *machine = cuda_enter(__func__, gpu, &entered_); \
  if (!machine) return entered_

#endif
