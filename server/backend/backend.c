// Common parts of backends: access to the service, the second half of a node, the size of groups of
// multiprocessors, and the meaning of a result code for the context.

#include "server/backend/backend.h"

struct last_words *backend_last_words;
const struct backend_watch *_Atomic backend_watch;
bool backend_contains;
bool backend_is_served;
bool backend_is_unproved;

struct backend_copy backend_copy_on(const struct backend_copy *copy, uint64_t to)
{
	return (struct backend_copy){
		.dst = to,
		.src = copy->dst,
		.width = copy->width,
		.height = copy->height,
		.depth = copy->depth,
		.dst_pitch = copy->dst_pitch,
		.src_pitch = copy->dst_pitch,
		.dst_rows = copy->dst_rows,
		.src_rows = copy->dst_rows,
	};
}

struct backend_copy backend_set_on(const struct frmps_set *set, uint64_t to)
{
	return (struct backend_copy){
		.dst = to,
		.src = set->dst,
		.width = set->width * set->element_bytes,
		.height = set->height,
		.depth = 1,
		.dst_pitch = set->pitch,
		.src_pitch = set->pitch,
	};
}

struct backend_copy backend_node_on(const struct backend_node *node)
{
	if (node->op == FRMPS_OP_LAUNCH)
		return (struct backend_copy){.dst = node->onto,
			.src = node->store,
			.width = node->store_bytes,
			.height = 1,
			.depth = 1};
	return node->op == FRMPS_OP_SET ? backend_set_on(node->set, node->onto)
					: backend_copy_on(&node->copy, node->onto);
}

static uint32_t count_outside(const struct backend_device *device)
{
	uint32_t all = (uint32_t)device->attributes[CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT];
	uint32_t inside = device->sm_units * device->sm_granule;

	return all > inside && device->sm_units < BACKEND_SM_UNITS_MAX ? all - inside : 0;
}

uint64_t backend_all_sms(const struct backend_device *device)
{
	return BACKEND_SMS(0, device->sm_units + (device->sm_units && count_outside(device)));
}

uint32_t backend_sms_count(const struct backend_device *device, uint64_t sms)
{
	const uint64_t inside = sms & BACKEND_SMS(0, device->sm_units);

	return BACKEND_SMS_UNITS(inside) * device->sm_granule + (sms == inside ? 0 : count_outside(device));
}

bool backend_is_of_device(CUresult code)
{
	return code == CUDA_ERROR_ECC_UNCORRECTABLE || code == CUDA_ERROR_NVLINK_UNCORRECTABLE ||
	       code == CUDA_ERROR_CONTAINED;
}

/*
 * Fatal codes describe the context and not the call: after such a code every later call of the
 * process fails with the same code.
 *
 * Left out on purpose: 999 (unknown) and 304 (operating system), which drivers also return for a
 * single bad call: if the context is lost with them, the next query of any stream keeps failing and
 * no completion word arrives, which the executor's own watchdog sees; 701 and 720 (a launch that
 * does not fit), 201 (no context current: our bug, not the GPU's); 911 (a foreign device: we import
 * no foreign semaphores).
 */
bool backend_is_fatal(CUresult code)
{
	switch (code) {
	/* A kernel did something that the hardware stopped. */
	case CUDA_ERROR_ILLEGAL_ADDRESS:
	case CUDA_ERROR_LAUNCH_TIMEOUT:
	case CUDA_ERROR_ASSERT:
	case CUDA_ERROR_HARDWARE_STACK_ERROR:
	case CUDA_ERROR_ILLEGAL_INSTRUCTION:
	case CUDA_ERROR_MISALIGNED_ADDRESS:
	case CUDA_ERROR_INVALID_ADDRESS_SPACE:
	case CUDA_ERROR_INVALID_PC:
	case CUDA_ERROR_LAUNCH_FAILED:
	case CUDA_ERROR_TENSOR_MEMORY_LEAK:
	/* The hardware itself failed under the context. */
	case CUDA_ERROR_ECC_UNCORRECTABLE:
	case CUDA_ERROR_NVLINK_UNCORRECTABLE:
	case CUDA_ERROR_CONTAINED:
	/* The driver, or a stock MPS server between us and the driver, took the context away. */
	case CUDA_ERROR_DEINITIALIZED:
	case CUDA_ERROR_CONTEXT_IS_DESTROYED:
	case CUDA_ERROR_MPS_RPC_FAILURE:
	case CUDA_ERROR_MPS_CLIENT_TERMINATED:
		return true;
	default:
		return false;
	}
}
