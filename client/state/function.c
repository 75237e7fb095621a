// Kernel objects: made from the service's answer to a lookup, and their attributes. Runs on the
// program's threads. The objects live in a slab whose index is the kernel's id minus 1; an object
// owns its name and parameter layout.

#include "client/state/function.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/link/control.h"
#include "client/state/device.h"
#include "client/state/log.h"
#include "client/state/session.h"
#include "client/submit/submit.h"
#include "client/submit/wait.h"
#include "protocol/command.h"

_Static_assert(sizeof(struct client_function) <= 1u << FUNCTION_SHIFT, "a kernel object fits its place");

struct slab function_slab = SLAB_INIT(FUNCTION_SHIFT, FUNCTION_IDS);

static _Atomic uint64_t serials;

static uint32_t attribute_or(const struct client_device *device, int attribute, uint32_t otherwise)
{
	int value = 0;

	if (!device || device_attribute(device, attribute, &value) != CUDA_SUCCESS || value <= 0)
		return otherwise;
	return (uint32_t)value;
}

/* The device's limits; without a value any size passes here and the service checks. */
static void set_limits(struct client_function *function, int ordinal)
{
	const struct client_device *device = device_get(ordinal);
	int32_t own = function->attributes[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK];

	for (int i = 0; i < 3; ++i) {
		function->max_grid[i] =
			attribute_or(device, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X + i, UINT32_MAX);
		function->max_block[i] =
			attribute_or(device, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X + i, UINT32_MAX);
	}
	function->max_threads = attribute_or(device, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, UINT32_MAX);
	if (own > 0 && (uint32_t)own < function->max_threads)
		function->max_threads = (uint32_t)own;
}

static bool decode_params(
	const uint64_t *values, uint32_t count, struct function_param *ret_params, uint32_t *ret_bytes)
{
	uint64_t end = 0;

	for (uint32_t i = 0; i < count; ++i) {
		uint64_t offset = values[2 * i], size = values[2 * i + 1];

		if (offset < end || offset > FRMPS_ARGUMENT_MAX || size > FRMPS_ARGUMENT_MAX - offset)
			return false;
		ret_params[i] = (struct function_param){.offset = (uint32_t)offset, .size = (uint32_t)size};
		end = offset + size;
	}
	*ret_bytes = (uint32_t)end;
	return true;
}

/* Values of a description without parameters: their number, the attributes, the size of a block and
 * that of a cluster, and what a grid counts. */
#define DESCRIPTION_VALUES (1 + CU_FUNC_ATTRIBUTE_MAX + 3 + 1 + 1)

static void decode_attributes(struct client_function *function, const uint64_t *values)
{
	for (uint32_t i = 0; i < CU_FUNC_ATTRIBUTE_MAX; ++i)
		function->attributes[i] = (int32_t)values[i];
	for (uint32_t i = 0; i < 3; ++i)
		function->only_block[i] = (uint32_t)values[CU_FUNC_ATTRIBUTE_MAX + i];
	function->max_cluster = (uint32_t)values[CU_FUNC_ATTRIBUTE_MAX + 3];
	function->counts_clusters = values[CU_FUNC_ATTRIBUTE_MAX + 4] != 0;
	function->has_cluster = function->attributes[CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH] > 0;
	function->granted_shared = function->attributes[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES];
	function->granted_clusters =
		function->attributes[CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED];
}

CUresult function_decode(struct client_function *function, const struct wire_u64s *values)
{
	struct function_param *params = NULL;
	uint64_t count;

	if (values->count < DESCRIPTION_VALUES)
		return CUDA_ERROR_UNKNOWN;
	count = values->at[0];
	if (count > FRMPS_ARGUMENT_MAX || values->count != DESCRIPTION_VALUES + 2 * count)
		return CUDA_ERROR_UNKNOWN;
	if (count > 0) {
		params = calloc(count, sizeof(*params));
		if (!params)
			return CUDA_ERROR_OUT_OF_MEMORY;
		if (!decode_params(values->at + 1, (uint32_t)count, params, &function->argument_bytes)) {
			free(params);
			return CUDA_ERROR_UNKNOWN;
		}
	}
	function->params = params;
	function->param_count = (uint32_t)count;
	decode_attributes(function, values->at + 1 + 2 * count);
	return CUDA_SUCCESS;
}

/* Writes the service's description of the kernel to `into`. */
static CUresult ask(const struct client_function *function, uint32_t module_id, struct client_function *into)
{
	struct wire_message request = {.type = WIRE_FIND_FUNCTION};
	struct control_answer *answer = control_answer_new();
	int saved = errno;
	CUresult result;

	if (!answer)
		return CUDA_ERROR_OUT_OF_MEMORY;
	request.symbol.module = module_id;
	request.symbol.function = function->id;
	request.symbol.name = function->name;
	result = control_call(&request, answer);
	if (result == CUDA_SUCCESS) {
		result = function_decode(into, &answer->message.reply.values);
		if (result == CUDA_ERROR_UNKNOWN)
			client_log(CLIENT_LOG_ERROR, "the service's description of kernel %.200s is invalid",
				function->name);
	}
	control_answer_free(answer);
	errno = saved;
	return result;
}

CUresult function_new(struct client_module *module, uint32_t module_id, const char *name,
	struct client_function **ret_function)
{
	struct client_function *function = slab_take(&function_slab);
	CUresult result = CUDA_ERROR_OUT_OF_MEMORY;

	if (!function)
		return CUDA_ERROR_OUT_OF_MEMORY;
	function->id = slab_index(&function_slab, function) + 1;
	function->module = module;
	function->serial = atomic_fetch_add_explicit(&serials, 1, memory_order_relaxed) + 1;
	function->name = strdup(name);
	if (function->name)
		result = ask(function, module_id, function);
	if (result != CUDA_SUCCESS) {
		/* After "not found" the service does not have the id; after any other error it
		 * may. */
		function_free(function, result == CUDA_ERROR_NOT_FOUND || !function->name);
		return result;
	}
	function->session = session_self();
	set_limits(function, device_own());
	atomic_store_explicit(&function->object.live, FUNCTION_MAGIC, memory_order_release);
	*ret_function = function;
	return CUDA_SUCCESS;
}

void function_free(struct client_function *function, bool reusable)
{
	atomic_store_explicit(&function->object.live, 0, memory_order_release);
	free((void *)(uintptr_t)function->params);
	free((void *)(uintptr_t)function->name);
	function->params = NULL;
	function->name = NULL;
	function->param_count = 0;
	if (reusable)
		slab_give(&function_slab, function);
}

CUresult function_attribute(const struct client_function *function, int attribute, int *ret_value)
{
	if (!ret_value || attribute < 0 || attribute >= CU_FUNC_ATTRIBUTE_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	*ret_value = function->attributes[attribute];
	return CUDA_SUCCESS;
}

/* Earlier launches must keep the old value: see function.h. A change of a hint may overtake
 * launches that wait in software, for a host function for instance: a wait for these could wait for
 * this very thread. */
static CUresult await_launches(struct client_function *function, uint32_t attribute)
{
	if (!word_relaxed(&function->launched))
		return CUDA_SUCCESS;
	switch (attribute) {
	case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
	case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
	case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
		return wait_all();
	case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
	case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
		return CUDA_SUCCESS; /* permissions: only ever raised */
	default:
		return submit_drain();
	}
}

static CUresult send_attribute(struct client_function *function, uint32_t attribute, int32_t value)
{
	SESSION_SCOPE(function->session);
	struct wire_message request = {.type = WIRE_SET_FUNCTION};
	struct control_answer *answer;
	int saved = errno;
	CUresult result = await_launches(function, attribute);

	if (result != CUDA_SUCCESS)
		return result;
	answer = control_answer_new();
	if (!answer)
		return CUDA_ERROR_OUT_OF_MEMORY;
	request.set_function.function = function->id;
	request.set_function.attribute = attribute;
	request.set_function.value = value;
	result = control_call(&request, answer);
	control_answer_free(answer);
	errno = saved;
	return result;
}

/* The attributes that programs may set, and their values. The service checks limits of the
 * device. */
static bool may_set(const struct client_function *function, int attribute, int32_t value)
{
	switch (attribute) {
	case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
		return value >= 0;
	case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
		return value >= CU_SHAREDMEM_CARVEOUT_DEFAULT && value <= CU_SHAREDMEM_CARVEOUT_MAX_SHARED;
	case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
	case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
	case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
		return function->has_cluster ? value == function->attributes[attribute] : value >= 0;
	case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
		return true;
	case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
		return value >= CU_CLUSTER_SCHEDULING_POLICY_DEFAULT &&
		       value <= CU_CLUSTER_SCHEDULING_POLICY_LOAD_BALANCING;
	default:
		return false;
	}
}

/* The service's value of a permission, NULL for other attributes. */
static int32_t *granted(struct client_function *function, int attribute)
{
	if (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)
		return &function->granted_shared;
	if (attribute == CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED)
		return &function->granted_clusters;
	return NULL;
}

CUresult function_set_attribute(struct client_function *function, int attribute, int value)
{
	int32_t *grant = granted(function, attribute);
	CUresult result;

	if (attribute == CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED)
		value = value != 0;
	if (!may_set(function, attribute, value))
		return CUDA_ERROR_INVALID_VALUE;
	if (function->attributes[attribute] == value)
		return CUDA_SUCCESS;
	if (!grant || value > *grant) {
		result = send_attribute(function, (uint32_t)attribute, value);
		if (result != CUDA_SUCCESS)
			return result;
		if (grant)
			*grant = value;
	}
	function->attributes[attribute] = value;
	++function->revision;
	return CUDA_SUCCESS;
}

CUresult function_set_cache_config(struct client_function *function, int config)
{
	CUresult result;

	if (config < CU_FUNC_CACHE_PREFER_NONE || config > CU_FUNC_CACHE_PREFER_EQUAL)
		return CUDA_ERROR_INVALID_VALUE;
	if (function->cache_config == config)
		return CUDA_SUCCESS;
	result = send_attribute(function, FUNCTION_ATTRIBUTE_CACHE, config);
	if (result != CUDA_SUCCESS)
		return result;
	function->cache_config = config;
	++function->revision;
	return CUDA_SUCCESS;
}

CUresult function_param_info(
	const struct client_function *function, size_t index, size_t *ret_offset, size_t *ret_size)
{
	if (!ret_offset || index >= function->param_count)
		return CUDA_ERROR_INVALID_VALUE;
	*ret_offset = function->params[index].offset;
	if (ret_size)
		*ret_size = function->params[index].size;
	return CUDA_SUCCESS;
}

CUresult function_follow(struct client_function *function, const struct client_function *kernel)
{
	uint32_t revision = kernel->revision;
	CUresult result = CUDA_SUCCESS;

	if (function->followed == revision)
		return CUDA_SUCCESS;
	for (int i = 0; i < CU_FUNC_ATTRIBUTE_MAX && result == CUDA_SUCCESS; ++i)
		if (may_set(function, i, kernel->attributes[i]))
			result = function_set_attribute(function, i, kernel->attributes[i]);
	if (result == CUDA_SUCCESS)
		result = function_set_cache_config(function, kernel->cache_config);
	if (result == CUDA_SUCCESS)
		function->followed = revision;
	return result;
}

void function_sleep(struct client_function *function)
{
	atomic_store_explicit(&function->object.live, FUNCTION_ASLEEP, memory_order_release);
}

/* Sends an attribute if it differs from the service's value after a load. */
static CUresult restore_attribute(
	struct client_function *function, const struct client_function *fresh, uint32_t attribute)
{
	int32_t value = function->attributes[attribute];

	return value != fresh->attributes[attribute] ? send_attribute(function, attribute, value)
						     : CUDA_SUCCESS;
}

static CUresult restore(struct client_function *function, const struct client_function *fresh)
{
	CUresult result = CUDA_SUCCESS;

	function->granted_shared = fresh->granted_shared;
	function->granted_clusters = fresh->granted_clusters;
	word_set(&function->launched, 0);
	for (uint32_t i = 0; i < CU_FUNC_ATTRIBUTE_MAX && result == CUDA_SUCCESS; ++i)
		if (may_set(function, (int)i, function->attributes[i]))
			result = restore_attribute(function, fresh, i);
	if (result == CUDA_SUCCESS && function->cache_config != CU_FUNC_CACHE_PREFER_NONE)
		result = send_attribute(function, FUNCTION_ATTRIBUTE_CACHE, function->cache_config);
	if (result != CUDA_SUCCESS)
		return result;
	if (function->granted_shared < function->attributes[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES])
		function->granted_shared =
			function->attributes[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES];
	if (function->granted_clusters <
		function->attributes[CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED])
		function->granted_clusters =
			function->attributes[CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED];
	return CUDA_SUCCESS;
}

CUresult function_renew(struct client_function *function, uint32_t module_id)
{
	struct client_function fresh = {0};
	CUresult result = ask(function, module_id, &fresh);

	free((void *)(uintptr_t)fresh.params);
	if (result == CUDA_SUCCESS)
		result = restore(function, &fresh);
	if (result == CUDA_SUCCESS)
		atomic_store_explicit(&function->object.live, FUNCTION_MAGIC, memory_order_release);
	return result;
}
