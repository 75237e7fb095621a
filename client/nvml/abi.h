// The part of NVML's binary interface that this library uses, in our own declarations. Programs
// look up these names.

#ifndef FRMPS_CLIENT_NVML_ABI_H
#define FRMPS_CLIENT_NVML_ABI_H

#include <stdint.h>

enum {
	NVML_SUCCESS = 0,
	NVML_ERROR_UNINITIALIZED = 1,
	NVML_ERROR_INVALID_ARGUMENT = 2,
	NVML_ERROR_NOT_SUPPORTED = 3,
	NVML_ERROR_NO_PERMISSION = 4,
	NVML_ERROR_NOT_FOUND = 6,
	NVML_ERROR_INSUFFICIENT_SIZE = 7,
	NVML_ERROR_DRIVER_NOT_LOADED = 9,
	NVML_ERROR_FUNCTION_NOT_FOUND = 13,
	NVML_ERROR_UNKNOWN = 999,
};

/* nvmlGpuP2PStatus_t */
enum { NVML_P2P_STATUS_OK = 0, NVML_P2P_STATUS_NOT_SUPPORTED = 5 };

/* nvmlGpuP2PCapsIndex_t */
enum { NVML_P2P_CAPS_READ = 0, NVML_P2P_CAPS_WRITE = 1, NVML_P2P_CAPS_ATOMICS = 3 };

typedef struct nvml_device *nvml_device;

struct nvml_memory {
	uint64_t total, free, used;
};

struct nvml_memory_v2 {
	uint32_t version, padding;
	uint64_t total, reserved, free, used;
};

struct nvml_process_v1 {
	uint32_t pid;
	uint64_t bytes;
};

/* Of the second and the third version of the calls. */
struct nvml_process {
	uint32_t pid;
	uint64_t bytes;
	uint32_t gpu_instance, compute_instance;
};

struct nvml_pci_v2 {
	char bus_id_short[16];
	uint32_t domain, bus, device, device_id, subsystem_id, reserved[4];
};

struct nvml_pci {
	char bus_id_short[16];
	uint32_t domain, bus, device, device_id, subsystem_id;
	char bus_id[32];
};

_Static_assert(sizeof(struct nvml_memory_v2) == 40 && sizeof(struct nvml_process_v1) == 16 &&
		       sizeof(struct nvml_process) == 24 && sizeof(struct nvml_pci) == 68 &&
		       sizeof(struct nvml_pci_v2) == 52,
	"layouts of NVML");

#endif
