// Entry points: devices. What cuInit has listed answers every question, except the number of
// multiprocessors.

#include "client/entry/entry.h"

#include <stdio.h>
#include <string.h>

#include "client/state/device.h"
#include "client/state/peer.h"

/* First lines of every question about a device. */
static CUresult enter(CUdevice ordinal, const void *output, const struct client_device **ret_device)
{
	CUresult r = process_enter_early();

	if (r != CUDA_SUCCESS)
		return r;
	if (!output)
		return CUDA_ERROR_INVALID_VALUE;
	*ret_device = device_get(ordinal);
	return *ret_device ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUDA_EXPORT CUresult cuDeviceGetCount(int *count)
{
	CUresult r = process_enter_early();

	if (r != CUDA_SUCCESS)
		return r;
	if (!count)
		return CUDA_ERROR_INVALID_VALUE;
	*count = device_count();
	return CUDA_SUCCESS;
}

CUDA_EXPORT CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
	const struct client_device *d;
	CUresult r = enter(ordinal, device, &d);

	if (r == CUDA_SUCCESS)
		*device = ordinal;
	return r;
}

CUDA_EXPORT CUresult cuDeviceGetName(char *name, int length, CUdevice device)
{
	const struct client_device *d;
	CUresult r = enter(device, name, &d);

	if (r != CUDA_SUCCESS)
		return r;
	if (length <= 0)
		return CUDA_ERROR_INVALID_VALUE;
	snprintf(name, (size_t)length, "%s", d->name);
	return CUDA_SUCCESS;
}

CUDA_EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
	const struct client_device *d;
	CUresult r = enter(device, bytes, &d);

	if (r == CUDA_SUCCESS)
		*bytes = d->total_bytes;
	return r;
}

CUDA_EXPORT CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
	const struct client_device *d;
	CUresult r = enter(device, value, &d);

	return r == CUDA_SUCCESS ? device_attribute(d, (int)attribute, value) : r;
}

CUDA_EXPORT CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device)
{
	const struct client_device *d;
	CUresult r = enter(device, uuid, &d);

	if (r == CUDA_SUCCESS)
		memcpy(uuid->bytes, d->uuid, sizeof(uuid->bytes));
	return r;
}

CUDA_EXPORT CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device)
{
	return cuDeviceGetUuid_v2(uuid, device);
}

CUDA_EXPORT CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice device)
{
	const struct client_device *d;
	CUresult r = enter(device, major && minor ? major : NULL, &d);

	if (r == CUDA_SUCCESS)
		r = device_attribute(d, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, major);
	if (r == CUDA_SUCCESS)
		r = device_attribute(d, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, minor);
	return r;
}

CUDA_EXPORT CUresult cuDeviceGetPCIBusId(char *text, int length, CUdevice device)
{
	const struct client_device *d;
	CUresult r = enter(device, text, &d);
	uint8_t uuid[16];
	int32_t domain, bus, slot;

	if (r != CUDA_SUCCESS)
		return r;
	/* The whole text or nothing: "dddd:bb:ss.0". */
	if (length < 13 || !device_identity(device, uuid, &domain, &bus, &slot))
		return CUDA_ERROR_INVALID_VALUE;
	snprintf(text, (size_t)length, "%04x:%02x:%02x.0", (unsigned int)domain & 0xffff,
		(unsigned int)bus & 0xff, (unsigned int)slot & 0xff);
	return CUDA_SUCCESS;
}

/* "domain:bus:device.function", "domain:bus:device" or "bus:device.function", all hexadecimal. */
static bool parse_bus_id(
	const char *text, unsigned int *ret_domain, unsigned int *ret_bus, unsigned int *ret_slot)
{
	unsigned int function;

	if (sscanf(text, "%x:%x:%x.%x", ret_domain, ret_bus, ret_slot, &function) >= 3)
		return true;
	*ret_domain = 0;
	return sscanf(text, "%x:%x.%x", ret_bus, ret_slot, &function) == 3;
}

CUDA_EXPORT CUresult cuDeviceGetByPCIBusId(CUdevice *device, const char *text)
{
	CUresult r = process_enter_early();
	unsigned int domain, bus, slot;
	uint8_t uuid[16];
	int32_t own[3];

	if (r != CUDA_SUCCESS)
		return r;
	if (!device || !text || !parse_bus_id(text, &domain, &bus, &slot))
		return CUDA_ERROR_INVALID_VALUE;
	for (int i = 0; device_identity(i, uuid, &own[0], &own[1], &own[2]); ++i)
		if ((unsigned int)own[0] == domain && (unsigned int)own[1] == bus &&
			(unsigned int)own[2] == slot) {
			*device = i;
			return CUDA_SUCCESS;
		}
	return CUDA_ERROR_INVALID_DEVICE;
}

static int value_of(const struct client_device *d, CUdevice_attribute attribute)
{
	int value = 0;

	device_attribute(d, (int)attribute, &value);
	return value;
}

CUDA_EXPORT CUresult cuDeviceGetProperties(CUdevprop *p, CUdevice device)
{
	const struct client_device *d;
	CUresult r = enter(device, p, &d);

	if (r != CUDA_SUCCESS)
		return r;
	*p = (CUdevprop){
		.maxThreadsPerBlock = value_of(d, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK),
		.maxThreadsDim = {value_of(d, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X),
			value_of(d, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y),
			value_of(d, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z)},
		.maxGridSize = {value_of(d, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X),
			value_of(d, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y),
			value_of(d, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z)},
		.sharedMemPerBlock = value_of(d, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK),
		.totalConstantMemory = value_of(d, CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY),
		.SIMDWidth = value_of(d, CU_DEVICE_ATTRIBUTE_WARP_SIZE),
		.memPitch = value_of(d, CU_DEVICE_ATTRIBUTE_MAX_PITCH),
		.regsPerBlock = value_of(d, CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK),
		.clockRate = value_of(d, CU_DEVICE_ATTRIBUTE_CLOCK_RATE),
		.textureAlign = value_of(d, CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT),
	};
	return CUDA_SUCCESS;
}

CUDA_EXPORT CUresult cuDeviceGetExecAffinitySupport(int *support, CUexecAffinityType type, CUdevice device)
{
	const struct client_device *d;
	CUresult r = enter(device, support, &d);

	if (r != CUDA_SUCCESS)
		return r;
	if ((unsigned int)type >= CU_EXEC_AFFINITY_TYPE_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	*support = 0;
	return CUDA_SUCCESS;
}

CUDA_EXPORT CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer)
{
	const struct client_device *d;
	CUresult r = enter(device, can, &d);

	if (r == CUDA_SUCCESS)
		r = enter(peer, can, &d);
	if (r == CUDA_SUCCESS)
		*can = peer_can(device, peer);
	return r;
}

/* Arrays of another device are reached by no kernel here. */
static int peer_attribute(uint8_t link, CUdevice_P2PAttribute attribute)
{
	switch (attribute) {
	case CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK:
		return WIRE_PEER_RANK(link);
	case CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED:
		return !!(link & WIRE_PEER_ACCESS);
	case CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED:
		return !!(link & WIRE_PEER_ATOMICS);
	default:
		return 0;
	}
}

CUDA_EXPORT CUresult cuDeviceGetP2PAttribute(
	int *value, CUdevice_P2PAttribute attribute, CUdevice from, CUdevice to)
{
	const struct client_device *d, *other;
	CUresult r = enter(from, value, &d);

	if (r == CUDA_SUCCESS)
		r = enter(to, value, &other);
	/* The question is about two different devices. */
	if (r == CUDA_SUCCESS && from == to)
		r = CUDA_ERROR_INVALID_DEVICE;
	if (r == CUDA_SUCCESS &&
		(attribute < CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK ||
			attribute > CU_DEVICE_P2P_ATTRIBUTE_ONLY_PARTIAL_NATIVE_ATOMIC_SUPPORTED))
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		*value = peer_attribute(d->peers[other->number], attribute);
	return r;
}

CUDA_EXPORT CUresult cuFlushGPUDirectRDMAWrites(
	CUflushGPUDirectRDMAWritesTarget target, CUflushGPUDirectRDMAWritesScope scope)
{
	CUresult r = process_enter_context();

	if (r != CUDA_SUCCESS)
		return r;
	if (target != CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX)
		return CUDA_ERROR_INVALID_VALUE;
	if (scope != CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER &&
		scope != CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_ALL_DEVICES)
		return CUDA_ERROR_INVALID_VALUE;
	/* No third device can reach this program's memory, so no such write is in flight. */
	return CUDA_ERROR_NOT_SUPPORTED;
}
