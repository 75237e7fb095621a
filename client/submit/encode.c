// Checks and layout of kernel launches. No state.

#include "client/submit/encode.h"

#include <limits.h>
#include <stddef.h>
#include <string.h>

#include "client/state/device.h"
#include "client/state/log.h"
#include "client/state/session.h"

/* Largest cluster that every device with clusters can run, and the largest that any device can. */
#define CLUSTER_PORTABLE 8u
#define CLUSTER_MAX	 16u

/*
 * The error for a too large block, as the driver returns it: "out of resources" if the registers of
 * the block do not fit, else "invalid value".
 */
static CUresult block_error(const struct client_function *function, uint64_t threads)
{
	const struct client_device *device = device_get(session_ordinal(function->session));
	uint64_t registers = (uint64_t)function->attributes[CU_FUNC_ATTRIBUTE_NUM_REGS];
	int limit = 0;

	if (!device ||
		device_attribute(device, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, &limit) != CUDA_SUCCESS ||
		threads > (uint64_t)limit)
		return CUDA_ERROR_INVALID_VALUE;
	if (device_attribute(device, CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, &limit) != CUDA_SUCCESS)
		return CUDA_ERROR_INVALID_VALUE;
	/* Registers are given to warps of 32 threads, in units of 8 per thread. */
	registers = (registers + 7) / 8 * 8 * ((threads + 31) / 32 * 32);
	return registers > (uint64_t)limit ? CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES : CUDA_ERROR_INVALID_VALUE;
}

struct dim {
	uint32_t x, y, z;
};

static bool is_set(struct dim dim)
{
	return dim.x || dim.y || dim.z;
}

static bool divides(struct dim divisor, const uint32_t of[3])
{
	return of[0] % divisor.x == 0 && of[1] % divisor.y == 0 && of[2] % divisor.z == 0;
}

/* Blocks of a cluster; 0 for a size that no device has. */
static uint32_t cluster_blocks(struct dim cluster)
{
	if (cluster.x > CLUSTER_MAX || cluster.y > CLUSTER_MAX || cluster.z > CLUSTER_MAX)
		return 0;
	return cluster.x * cluster.y * cluster.z;
}

/* An attribute that is as if it was not given. */
static bool is_empty(const CUlaunchAttribute *attribute)
{
	const CUlaunchAttributeValue *value = &attribute->value;

	/* Both kinds of sizes are alike. */
	return attribute->id == CU_LAUNCH_ATTRIBUTE_IGNORE ||
	       ((attribute->id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION ||
			attribute->id == CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION) &&
		       !value->clusterDim.x && !value->clusterDim.y && !value->clusterDim.z);
}

/* The launch's cluster sizes; all zero means none. */
static void read_clusters(const struct launch *launch, struct dim *ret_cluster, struct dim *ret_preferred)
{
	for (uint32_t i = 0; i < launch->attribute_total; ++i) {
		const CUlaunchAttributeValue *value = &launch->attributes[i].value;

		if (is_empty(&launch->attributes[i]))
			continue;
		if (launch->attributes[i].id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
			*ret_cluster =
				(struct dim){value->clusterDim.x, value->clusterDim.y, value->clusterDim.z};
		if (launch->attributes[i].id == CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION)
			*ret_preferred = (struct dim){value->preferredClusterDim.x,
				value->preferredClusterDim.y, value->preferredClusterDim.z};
	}
}

/* The preferred size is made of clusters, and the grid of both. */
static bool fits_preferred(struct dim preferred, struct dim cluster, const uint32_t grid[3])
{
	const uint32_t sizes[3] = {preferred.x, preferred.y, preferred.z};

	return cluster.x && cluster.y && cluster.z && preferred.x && preferred.y && preferred.z &&
	       divides(cluster, sizes) && divides(preferred, grid);
}

static struct dim own_clusters(const struct client_function *function)
{
	const int32_t *attributes = function->attributes;

	return (struct dim){(uint32_t)attributes[CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH],
		(uint32_t)attributes[CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT],
		(uint32_t)attributes[CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH]};
}

/* Checks the launch's cluster size, the kernel's own, and the grid. */
static CUresult check_clusters(const struct launch *launch)
{
	const struct client_function *function = launch->function;
	const int32_t *attributes = function->attributes;
	const struct dim own = own_clusters(function);
	bool large = attributes[CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED] != 0;
	uint32_t blocks, most = large ? CLUSTER_MAX : CLUSTER_PORTABLE;
	struct dim cluster = {0, 0, 0}, preferred = {0, 0, 0};

	read_clusters(launch, &cluster, &preferred);
	if (is_set(own) && is_set(cluster) && memcmp(&own, &cluster, sizeof(own)) != 0)
		return CUDA_ERROR_INVALID_CLUSTER_SIZE;
	/* The kernel's own size does not do. */
	if (is_set(preferred) && !fits_preferred(preferred, cluster, launch->grid))
		return CUDA_ERROR_INVALID_CLUSTER_SIZE;
	if (is_set(own))
		cluster = own;
	if (!is_set(cluster))
		return attributes[CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET] && !launch->is_node
			       ? CUDA_ERROR_INVALID_CLUSTER_SIZE
			       : CUDA_SUCCESS;
	blocks = cluster_blocks(cluster);
	if (function->max_cluster)
		most = function->max_cluster;
	if (blocks == 0 || blocks > most || (!function->counts_clusters && !divides(cluster, launch->grid)))
		return CUDA_ERROR_INVALID_CLUSTER_SIZE;
	return CUDA_SUCCESS;
}

uint32_t encode_cluster_blocks(const struct launch *launch)
{
	struct dim own = own_clusters(launch->function), cluster = {0, 0, 0}, preferred = {0, 0, 0};

	read_clusters(launch, &cluster, &preferred);
	return cluster_blocks(is_set(own) ? own : cluster);
}

/* True for kernels or launches with clusters, which are rare. */
static bool may_cluster(const struct launch *launch)
{
	const int32_t *attributes = launch->function->attributes;

	return launch->attribute_total || attributes[CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH] ||
	       attributes[CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT] ||
	       attributes[CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH] ||
	       attributes[CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET];
}

/* One thread stands for the only size that there is: so the runtime launches kernels of
 * __block_size__. */
static CUresult settle_block(struct launch *launch)
{
	static const uint32_t one[3] = {1, 1, 1};
	const uint32_t *only = launch->function->only_block;

	if (memcmp(launch->block, one, sizeof(one)) == 0)
		memcpy(launch->block, only, sizeof(launch->block));
	return memcmp(launch->block, only, sizeof(launch->block)) == 0 ? CUDA_SUCCESS
								       : CUDA_ERROR_INVALID_VALUE;
}

CUresult encode_check(struct launch *launch)
{
	const struct client_function *function = launch->function;
	uint64_t threads;

	if (__builtin_expect(function->only_block[0], 0)) {
		CUresult result = settle_block(launch);

		if (result != CUDA_SUCCESS)
			return result;
	}
	for (int i = 0; i < 3; ++i) {
		/* Zero wraps around and is too large as well. */
		if (launch->grid[i] - 1 >= function->max_grid[i] ||
			launch->block[i] - 1 >= function->max_block[i])
			return CUDA_ERROR_INVALID_VALUE;
	}
	threads = (uint64_t)launch->block[0] * launch->block[1];
	if (threads > function->max_threads || threads * launch->block[2] > function->max_threads)
		return block_error(function, threads > UINT32_MAX ? threads : threads * launch->block[2]);
	if (__builtin_expect(may_cluster(launch), 0)) {
		CUresult result = check_clusters(launch);

		if (result != CUDA_SUCCESS)
			return result;
	}
	if ((int64_t)launch->shared_bytes >
		(int64_t)function->attributes[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES])
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

static CUresult read_extra(struct launch *launch, void **extra)
{
	const void *buffer = NULL;
	const size_t *size = NULL;

	while (*extra != CU_LAUNCH_PARAM_END) {
		if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER)
			buffer = extra[1];
		else if (*extra == CU_LAUNCH_PARAM_BUFFER_SIZE)
			size = extra[1];
		else
			return CUDA_ERROR_INVALID_VALUE;
		extra += 2;
	}
	if (size && *size > 0 && !buffer)
		return CUDA_ERROR_INVALID_VALUE;
	if (launch->function->argument_bytes > 0 && (!buffer || !size))
		return CUDA_ERROR_INVALID_VALUE;
	launch->buffer = buffer;
	launch->buffer_bytes = size ? *size : 0;
	return CUDA_SUCCESS;
}

CUresult encode_arguments(struct launch *launch, void **params, void **extra)
{
	uint32_t count = launch->function->param_count;

	if (extra)
		return params ? CUDA_ERROR_INVALID_VALUE : read_extra(launch, extra);
	if (count == 0)
		return CUDA_SUCCESS;
	if (!params)
		return CUDA_ERROR_INVALID_VALUE;
	for (uint32_t i = 0; i < count; ++i)
		if (!params[i])
			return CUDA_ERROR_INVALID_VALUE;
	launch->params = params;
	return CUDA_SUCCESS;
}

static bool is_event(CUlaunchAttributeID id)
{
	return id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT ||
	       id == CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT;
}

CUevent encode_event(const CUlaunchAttribute *attribute)
{
	if (!is_event(attribute->id))
		return NULL;
	return attribute->id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT
		       ? attribute->value.programmaticEvent.event
		       : attribute->value.launchCompletionEvent.event;
}

/* An event is recorded as cuEventRecord() would, not as a node of a graph. */
static CUresult check_event(const CUlaunchAttribute *attribute)
{
	int flags = attribute->id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT
			    ? attribute->value.programmaticEvent.flags
			    : attribute->value.launchCompletionEvent.flags;

	if (!encode_event(attribute))
		return CUDA_ERROR_INVALID_HANDLE;
	if (flags == CU_EVENT_RECORD_EXTERNAL)
		return CUDA_ERROR_ILLEGAL_STATE;
	return flags == CU_EVENT_RECORD_DEFAULT ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static unsigned int limit_of(CUdevice_attribute attribute, unsigned int otherwise)
{
	const struct client_device *device = device_get(device_own());
	int most = 0;

	if (device && device_attribute(device, (int)attribute, &most) == CUDA_SUCCESS && most > 0)
		return (unsigned int)most;
	return otherwise;
}

static bool is_window(const CUaccessPolicyWindow *window)
{
	return window->num_bytes <= limit_of(CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE, UINT_MAX) &&
	       !(window->hitRatio < 0) && !(window->hitRatio > 1) &&
	       window->missProp != CU_ACCESS_PROPERTY_PERSISTING;
}

static bool is_map(const CUlaunchMemSyncDomainMap *map)
{
	unsigned int count = limit_of(CU_DEVICE_ATTRIBUTE_MEM_SYNC_DOMAIN_COUNT, UINT_MAX);

	return map->default_ < count && map->remote < count;
}

bool encode_is_value(CUlaunchAttributeID id, const CUlaunchAttributeValue *value)
{
	switch (id) {
	case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
		return is_window(&value->accessPolicyWindow);
	case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
		return (unsigned int)value->clusterSchedulingPolicyPreference <=
		       CU_CLUSTER_SCHEDULING_POLICY_LOAD_BALANCING;
	case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
		return (unsigned int)value->memSyncDomain <= CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE;
	case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
		return is_map(&value->memSyncDomainMap);
	case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
		return value->sharedMemCarveout <= CU_SHAREDMEM_CARVEOUT_MAX_SHARED;
	case CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING:
		return value->nvlinkUtilCentricScheduling <= 1;
	default:
		return true;
	}
}

/* Attributes of launches, by their numbers. */
#define LAUNCH_IDS                                                                                           \
	(1u << CU_LAUNCH_ATTRIBUTE_IGNORE | 1u << CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW |                 \
		1u << CU_LAUNCH_ATTRIBUTE_COOPERATIVE | 1u << CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION |        \
		1u << CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE |                             \
		1u << CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION |                                \
		1u << CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT | 1u << CU_LAUNCH_ATTRIBUTE_PRIORITY |          \
		1u << CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP | 1u << CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN |  \
		1u << CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION |                                      \
		1u << CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT |                                          \
		1u << CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT |                                 \
		1u << CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING)

bool encode_is_last(const CUlaunchAttribute *attributes, uint32_t count, uint32_t at)
{
	uint32_t later = at + 1;

	while (later < count && (attributes[later].id != attributes[at].id || is_empty(&attributes[later])))
		++later;
	return later >= count;
}

static CUresult check_attribute(const CUlaunchAttribute *attribute)
{
	const CUlaunchAttributeValue *value = &attribute->value;
	unsigned int id = (unsigned int)attribute->id;

	if (is_event(attribute->id))
		return check_event(attribute);
	/* It names a node. */
	if (id == CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE) {
		client_log(CLIENT_LOG_ERROR, "launch attribute %u is not supported", id);
		return CUDA_ERROR_NOT_SUPPORTED;
	}
	if (id > CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING || !(LAUNCH_IDS >> id & 1))
		return CUDA_ERROR_INVALID_VALUE;
	if (id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION && !is_empty(attribute) &&
		(!value->clusterDim.x || !value->clusterDim.y || !value->clusterDim.z))
		return CUDA_ERROR_INVALID_CLUSTER_SIZE;
	return encode_is_value(attribute->id, value) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* False for attributes that have no effect or are a flag of the record; events have a record
 * each. */
static bool is_sent(const CUlaunchAttribute *attributes, uint32_t count, uint32_t at)
{
	CUlaunchAttributeID id = attributes[at].id;

	return id != CU_LAUNCH_ATTRIBUTE_COOPERATIVE && !is_event(id) && !is_empty(&attributes[at]) &&
	       encode_is_last(attributes, count, at);
}

CUresult encode_attributes(struct launch *launch, const CUlaunchAttribute *attributes, uint32_t count)
{
	uint32_t sent = 0;

	if (count > 0 && !attributes)
		return CUDA_ERROR_INVALID_VALUE;
	for (uint32_t i = 0; i < count; ++i) {
		CUresult result = check_attribute(&attributes[i]);

		if (result != CUDA_SUCCESS)
			return result;
		if (attributes[i].id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE)
			launch->cooperative = attributes[i].value.cooperative != 0;
		launch->event_count += is_event(attributes[i].id);
		sent += is_sent(attributes, count, i);
	}
	/* There are fewer kinds, unless another thread changes them meanwhile. */
	if (sent > FRMPS_ATTRIBUTE_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	launch->attributes = attributes;
	launch->attribute_total = count;
	launch->attribute_count = sent;
	return CUDA_SUCCESS;
}

size_t encode_value_bytes(CUlaunchAttributeID id)
{
	const CUlaunchAttributeValue *value;

	switch (id) {
	case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
		return offsetof(CUaccessPolicyWindow, missProp) + sizeof(value->accessPolicyWindow.missProp);
	case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
	case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION:
		return sizeof(value->clusterDim);
	case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
		return sizeof(value->memSyncDomainMap);
	case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE:
		return sizeof(value->deviceUpdatableKernelNode);
	default: /* a number or a name of 4 bytes */
		return sizeof(value->priority);
	}
}

/* The unused rest of the union differs from call to call; in graphs that would count as a
 * change. */
void encode_attribute(const CUlaunchAttribute *attribute, struct frmps_launch_attribute *ret_attribute)
{
	*ret_attribute = (struct frmps_launch_attribute){.id = (uint32_t)attribute->id};
	memcpy(ret_attribute->value, &attribute->value, encode_value_bytes(attribute->id));
}

/* Reads the program's array a second time; never writes more attributes than were counted. */
static void write_attributes(const struct launch *launch, struct frmps_launch_attribute *at)
{
	uint32_t written = 0;

	for (uint32_t i = 0; i < launch->attribute_total && written < launch->attribute_count; ++i)
		if (is_sent(launch->attributes, launch->attribute_total, i))
			encode_attribute(&launch->attributes[i], &at[written++]);
	memset(at + written, 0, (launch->attribute_count - written) * sizeof(*at));
}

/* Nearly all parameters have 8 or 4 bytes, which need no call. */
static inline void copy_param(uint8_t *to, const void *from, uint32_t size)
{
	if (size == 8)
		memcpy(to, from, 8);
	else if (size == 4)
		memcpy(to, from, 4);
	else
		memcpy(to, from, size);
}

static void write_params(const struct launch *launch, uint8_t *at)
{
	const struct client_function *function = launch->function;
	uint32_t end = 0;

	for (uint32_t i = 0; i < function->param_count; ++i) {
		struct function_param param = function->params[i];

		if (param.offset != end)
			memset(at + end, 0, param.offset - end);
		copy_param(at + param.offset, launch->params[i], param.size);
		end = param.offset + param.size;
	}
}

/* A program may omit the end of its arguments (NCCL does); the rest is zero. */
static void write_buffer(const struct launch *launch, uint8_t *at)
{
	size_t bytes = launch->function->argument_bytes;
	size_t given = launch->buffer_bytes < bytes ? launch->buffer_bytes : bytes;

	if (given > 0)
		memcpy(at, launch->buffer, given);
	memset(at + given, 0, bytes - given);
}

void encode_launch(const struct launch *launch, void *body)
{
	struct frmps_launch *head = body;
	struct frmps_launch_attribute *attributes = (struct frmps_launch_attribute *)(head + 1);
	uint8_t *arguments = (uint8_t *)(attributes + launch->attribute_count);

	*head = (struct frmps_launch){
		.function = launch->function->id,
		.grid_x = launch->grid[0],
		.grid_y = launch->grid[1],
		.grid_z = launch->grid[2],
		.block_x = launch->block[0],
		.block_y = launch->block[1],
		.block_z = launch->block[2],
		.shared_bytes = launch->shared_bytes,
		.argument_bytes = launch->function->argument_bytes,
		.attribute_count = launch->attribute_count,
	};
	if (launch->attribute_count > 0)
		write_attributes(launch, attributes);
	if (launch->params)
		write_params(launch, arguments);
	else
		write_buffer(launch, arguments);
}
