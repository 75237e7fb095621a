// See params.h. No state.

#include "client/graph/params.h"

#include <stdlib.h>
#include <string.h>

#include "client/graph/memory.h"
#include "client/state/context.h"
#include "client/state/device.h"
#include "client/state/event.h"
#include "client/state/function.h"
#include "client/state/instance.h"
#include "client/state/module.h"
#include "client/submit/cooperative.h"
#include "client/submit/encode.h"
#include "client/submit/operation.h"

/* ---- kernels ---- */

static struct frmps_launch_attribute *attributes_of(const struct graph_kernel *kernel)
{
	return (struct frmps_launch_attribute *)(void *)(kernel->body + 1);
}

static uint8_t *arguments_of(const struct graph_kernel *kernel)
{
	return (uint8_t *)(attributes_of(kernel) + kernel->body->attribute_count);
}

/* NULL: it is unloaded */
static const struct client_function *live_function(const struct graph_kernel *kernel)
{
	const struct client_function *function = function_find(kernel->function);

	return function && function->serial == kernel->function_serial ? function : NULL;
}

uint32_t params_kernel_bytes(const struct graph_kernel *kernel)
{
	const struct frmps_launch *body = kernel->body;

	return (uint32_t)(sizeof(*body) + body->attribute_count * sizeof(struct frmps_launch_attribute) +
			  body->argument_bytes);
}

/* The arguments have moved. The kernel itself may be unloaded and is not looked at. */
static void move_pointers(struct graph_kernel *kernel, void *const *from, const uint8_t *old)
{
	uint8_t *arguments = arguments_of(kernel);

	for (uint32_t i = 0; i < kernel->pointer_count; ++i)
		kernel->pointers[i] = arguments + ((const uint8_t *)from[i] - old);
}

CUresult params_launch(const struct launch *launch, struct graph_params *ret_params)
{
	struct graph_kernel kernel = {
		.function = launch->function,
		.function_serial = launch->function->serial,
		.cooperative = launch->cooperative,
		.body = malloc(encode_bytes(launch)),
		.pointers = calloc(launch->function->param_count + 1, sizeof(void *)),
		.pointer_count = launch->function->param_count,
	};

	if (!kernel.body || !kernel.pointers) {
		free(kernel.body);
		free(kernel.pointers);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	encode_launch(launch, kernel.body);
	for (uint32_t i = 0; i < kernel.pointer_count; ++i)
		kernel.pointers[i] = arguments_of(&kernel) + launch->function->params[i].offset;
	*ret_params = (struct graph_params){.type = CU_GRAPH_NODE_TYPE_KERNEL, .kernel = kernel};
	return CUDA_SUCCESS;
}

/* Another body with these attributes and the same arguments. */
static CUresult replace_attributes(
	struct graph_kernel *kernel, const struct frmps_launch_attribute *attributes, uint32_t count)
{
	size_t bytes = count * sizeof(*attributes);
	struct frmps_launch *old = kernel->body;
	struct frmps_launch *body = malloc(sizeof(*body) + bytes + old->argument_bytes);
	const uint8_t *arguments = arguments_of(kernel);

	if (!body)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*body = *old;
	body->attribute_count = count;
	if (bytes)
		memcpy(body + 1, attributes, bytes);
	memcpy((uint8_t *)(body + 1) + bytes, arguments, old->argument_bytes);
	kernel->body = body;
	move_pointers(kernel, kernel->pointers, arguments);
	free(old);
	return CUDA_SUCCESS;
}

/* The part is the last attribute. Return: NULL: there is none */
static const struct frmps_launch_attribute *part_of(const struct graph_kernel *kernel)
{
	const struct frmps_launch_attribute *all = attributes_of(kernel);
	uint32_t count = kernel->body->attribute_count;

	return count && all[count - 1].id == FRMPS_ATTRIBUTE_PART ? &all[count - 1] : NULL;
}

/* Other attributes, in front of a part, or of none. */
static CUresult set_attributes(struct graph_kernel *kernel, const struct frmps_launch_attribute *attributes,
	uint32_t count, const struct frmps_launch_attribute *part)
{
	struct frmps_launch_attribute all[FRMPS_ATTRIBUTE_MAX];

	if (count + (part != NULL) > FRMPS_ATTRIBUTE_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	if (count)
		memcpy(all, attributes, count * sizeof(all[0]));
	if (part)
		all[count++] = *part;
	return replace_attributes(kernel, all, count);
}

/* How many attributes the program has given. */
static uint32_t count_given(const struct graph_kernel *kernel)
{
	return kernel->body->attribute_count - (part_of(kernel) != NULL);
}

CUresult params_place(struct graph_params *params, CUcontext context)
{
	struct graph_kernel *kernel = &params->kernel;
	struct frmps_launch_attribute part = {.id = FRMPS_ATTRIBUTE_PART};
	uint64_t mask = context_part(context_green(context));

	kernel->context = context;
	memcpy(part.value, &mask, sizeof(mask));
	return mask ? set_attributes(kernel, attributes_of(kernel), count_given(kernel), &part)
		    : CUDA_SUCCESS;
}

/* @part: NULL: none */
static CUresult copy_attributes(
	struct graph_params *to, const struct graph_params *from, const struct frmps_launch_attribute *part)
{
	uint32_t count = count_given(&from->kernel);
	CUresult r = CUDA_SUCCESS;

	if (count || to->kernel.body->attribute_count || part)
		r = set_attributes(&to->kernel, attributes_of(&from->kernel), count, part);
	if (r == CUDA_SUCCESS)
		to->kernel.cooperative = from->kernel.cooperative;
	return r;
}

CUresult params_attributes_copy(struct graph_params *to, const struct graph_params *from)
{
	return copy_attributes(to, from, part_of(&to->kernel));
}

CUresult params_kernel(const CUDA_KERNEL_NODE_PARAMS *given, const struct graph_params *keep,
	struct graph_params *ret_params)
{
	struct launch launch = {
		.grid = {given->gridDimX, given->gridDimY, given->gridDimZ},
		.block = {given->blockDimX, given->blockDimY, given->blockDimZ},
		.shared_bytes = given->sharedMemBytes,
		.is_node = true,
	};
	struct client_function *function;
	CUresult r;

	r = function_enter(given->func ? (const void *)given->func : (const void *)given->kern, &function);
	if (r != CUDA_SUCCESS)
		return r;
	launch.function = function;
	r = encode_check(&launch);
	if (r == CUDA_SUCCESS)
		r = encode_arguments(&launch, given->kernelParams, given->extra);
	if (r == CUDA_SUCCESS)
		r = params_launch(&launch, ret_params);
	if (r != CUDA_SUCCESS)
		return r;
	if (keep) {
		ret_params->kernel.context = keep->kernel.context;
		r = copy_attributes(ret_params, keep, part_of(&keep->kernel));
		if (r == CUDA_SUCCESS)
			r = params_check_kernel(ret_params);
	} else {
		r = params_place(ret_params, context_shown());
	}
	if (r != CUDA_SUCCESS)
		params_deinit(ret_params);
	return r;
}

CUresult params_check_kernel(const struct graph_params *params)
{
	const struct graph_kernel *kernel = &params->kernel;
	const struct frmps_launch *body = kernel->body;
	const struct frmps_launch_attribute *kept = attributes_of(kernel);
	CUlaunchAttribute attributes[FRMPS_ATTRIBUTE_MAX];
	struct launch launch = {
		.function = live_function(kernel),
		.grid = {body->grid_x, body->grid_y, body->grid_z},
		.block = {body->block_x, body->block_y, body->block_z},
		.shared_bytes = body->shared_bytes,
		.cooperative = kernel->cooperative,
		.is_node = true,
		.attributes = attributes,
		.attribute_total = body->attribute_count,
	};
	CUresult r;

	/* A launch of the graph says that the kernel is gone. */
	if (!launch.function)
		return CUDA_SUCCESS;
	for (uint32_t i = 0; i < body->attribute_count; ++i) {
		attributes[i].id = (CUlaunchAttributeID)kept[i].id;
		memcpy(&attributes[i].value, kept[i].value, sizeof(attributes[i].value));
	}
	r = encode_check(&launch);
	return r == CUDA_SUCCESS && launch.cooperative ? cooperative_check(&launch, NULL) : r;
}

bool params_attributes_are_same(const struct graph_kernel *a, const struct graph_kernel *b)
{
	uint32_t count = a->body->attribute_count;

	return a->cooperative == b->cooperative && count == b->body->attribute_count &&
	       memcmp(attributes_of(a), attributes_of(b), count * sizeof(struct frmps_launch_attribute)) == 0;
}

static bool is_same_kernel(const struct graph_kernel *a, const struct graph_kernel *b)
{
	uint32_t bytes = params_kernel_bytes(a);

	return a->function == b->function && a->function_serial == b->function_serial &&
	       a->cooperative == b->cooperative && bytes == params_kernel_bytes(b) &&
	       memcmp(a->body, b->body, bytes) == 0;
}

/* A library's kernel has both a function and a kernel handle: the runtime recognises its kernels by
 * the latter. */
static CUkernel kernel_of(const struct graph_kernel *kernel)
{
	const struct client_function *function = live_function(kernel);

	return function && function->module->library ? (CUkernel)(uintptr_t)function : NULL;
}

void params_kernel_get(const struct graph_kernel *kernel, CUDA_KERNEL_NODE_PARAMS *ret_given)
{
	const struct frmps_launch *body = kernel->body;

	*ret_given = (CUDA_KERNEL_NODE_PARAMS){
		.func = (CUfunction)(uintptr_t)kernel->function,
		.kern = kernel_of(kernel),
		.gridDimX = body->grid_x,
		.gridDimY = body->grid_y,
		.gridDimZ = body->grid_z,
		.blockDimX = body->block_x,
		.blockDimY = body->block_y,
		.blockDimZ = body->block_z,
		.sharedMemBytes = body->shared_bytes,
		.ctx = kernel->context,
		.kernelParams = kernel->pointer_count ? kernel->pointers : NULL,
	};
}

static struct frmps_launch_attribute *find_attribute(
	const struct graph_kernel *kernel, CUlaunchAttributeID id)
{
	struct frmps_launch_attribute *at = attributes_of(kernel);

	for (uint32_t i = 0; i < kernel->body->attribute_count; ++i)
		if (at[i].id == (uint32_t)id)
			return &at[i];
	return NULL;
}

/* Attributes of nodes, by their numbers. One more can be set, but not read. */
#define NODE_IDS                                                                                             \
	(1u << CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW | 1u << CU_LAUNCH_ATTRIBUTE_COOPERATIVE |            \
		1u << CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION |                                                \
		1u << CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE |                             \
		1u << CU_LAUNCH_ATTRIBUTE_PRIORITY | 1u << CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP |         \
		1u << CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN |                                                  \
		1u << CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE |                                     \
		1u << CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT)

static bool is_of_nodes(CUlaunchAttributeID id)
{
	return (unsigned int)id < 32 && NODE_IDS >> id & 1;
}

CUresult params_attribute_set(
	struct graph_params *params, CUlaunchAttributeID id, const CUlaunchAttributeValue *value)
{
	struct graph_kernel *kernel = &params->kernel;
	struct launch check = {.function = kernel->function};
	struct frmps_launch_attribute all[FRMPS_ATTRIBUTE_MAX], *found;
	CUlaunchAttribute attribute = {.id = id, .value = *value};
	uint32_t count = count_given(kernel);
	CUresult r;

	/* The device's own ends stand for what is beyond. */
	if (id == CU_LAUNCH_ATTRIBUTE_PRIORITY)
		attribute.value.priority = device_clamp_priority(value->priority);
	if (!is_of_nodes(id) && id != CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING)
		return CUDA_ERROR_INVALID_VALUE;
	if (id == CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE &&
		value->deviceUpdatableKernelNode.deviceUpdatable != 1)
		return value->deviceUpdatableKernelNode.deviceUpdatable ? CUDA_ERROR_INVALID_VALUE
									: CUDA_SUCCESS;
	r = encode_attributes(&check, &attribute, 1);
	if (r != CUDA_SUCCESS)
		return r;
	if (id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE)
		kernel->cooperative = check.cooperative;
	if (check.attribute_count == 0) { /* expressed otherwise, or without effect */
		params_attribute_take(params, id);
		return CUDA_SUCCESS;
	}
	found = find_attribute(kernel, id);
	if (found) {
		encode_attribute(&attribute, found);
		return CUDA_SUCCESS;
	}
	if (count == FRMPS_ATTRIBUTE_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(all, attributes_of(kernel), count * sizeof(all[0]));
	encode_attribute(&attribute, &all[count]);
	return set_attributes(kernel, all, count + 1, part_of(kernel));
}

CUresult params_attribute_default(
	struct graph_params *params, CUlaunchAttributeID id, const CUlaunchAttributeValue *value)
{
	return find_attribute(&params->kernel, id) ? CUDA_SUCCESS : params_attribute_set(params, id, value);
}

CUresult params_attribute_get(
	const struct graph_params *params, CUlaunchAttributeID id, CUlaunchAttributeValue *ret_value)
{
	const struct frmps_launch_attribute *found = find_attribute(&params->kernel, id);
	CUlaunchAttributeValue value = {{0}};

	if (!is_of_nodes(id))
		return CUDA_ERROR_INVALID_VALUE;
	value.memSyncDomainMap.remote = id == CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP;
	if (id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE)
		value.cooperative = params->kernel.cooperative;
	else if (found)
		memcpy(&value, found->value, sizeof(value));
	memcpy(ret_value, &value, encode_value_bytes(id));
	return CUDA_SUCCESS;
}

bool params_attribute_take(struct graph_params *params, CUlaunchAttributeID id)
{
	struct graph_kernel *kernel = &params->kernel;
	struct frmps_launch_attribute *found = find_attribute(kernel, id);
	CUlaunchAttributeValue value;
	const uint8_t *old = arguments_of(kernel);
	uint8_t *behind;

	if (!found)
		return false;
	memcpy(&value, found->value, sizeof(value));
	behind = (uint8_t *)(found + 1);
	memmove(found, behind, (size_t)((uint8_t *)kernel->body + params_kernel_bytes(kernel) - behind));
	kernel->body->attribute_count--;
	move_pointers(kernel, kernel->pointers, old);
	return value.programmaticStreamSerializationAllowed != 0;
}

/* ---- the others ---- */

/* The instantiation checks the memory again. */
static CUresult check_box(const struct graph_copy *copy)
{
	struct box box = copy->box;
	struct copy_side dst, src;

	return box_is_empty(&box) ? CUDA_SUCCESS : copy_examine(&box, copy->how, &dst, &src);
}

CUresult params_copy(const CUDA_MEMCPY3D *given, struct graph_params *ret_params)
{
	struct graph_params params = {.type = CU_GRAPH_NODE_TYPE_MEMCPY, .copy = {.given = *given}};
	CUresult r = copy_describe(given, &params.copy.box, &params.copy.how);

	if (r == CUDA_SUCCESS)
		r = check_box(&params.copy);
	if (r == CUDA_SUCCESS)
		*ret_params = params;
	return r;
}

static CUmemorytype type_of(uint64_t address)
{
	struct copy_side side;

	if (copy_classify(address, 1, &side) != CUDA_SUCCESS || side.place == COPY_DEVICE)
		return CU_MEMORYTYPE_DEVICE;
	return CU_MEMORYTYPE_HOST;
}

CUresult params_box(const struct box *box, unsigned int how, struct graph_params *ret_params)
{
	struct graph_params params = {
		.type = CU_GRAPH_NODE_TYPE_MEMCPY, .copy = {.box = *box, .how = how & ~COPY_ASYNC}};
	CUresult r = check_box(&params.copy);

	params.copy.given = (CUDA_MEMCPY3D){
		.srcMemoryType = type_of(box->src.address),
		.srcHost = (const void *)(uintptr_t)box->src.address,
		.srcDevice = box->src.address,
		.srcPitch = box->src.pitch,
		.srcHeight = box->src.rows,
		.dstMemoryType = type_of(box->dst.address),
		.dstHost = (void *)(uintptr_t)box->dst.address,
		.dstDevice = box->dst.address,
		.dstPitch = box->dst.pitch,
		.dstHeight = box->dst.rows,
		.WidthInBytes = box->width,
		.Height = box->height,
		.Depth = box->depth,
	};
	copy_name_arrays(box, &params.copy.given);
	if (r == CUDA_SUCCESS)
		*ret_params = params;
	return r;
}

CUresult params_set(const CUDA_MEMSET_NODE_PARAMS *given, struct graph_params *ret_params)
{
	const struct copy_fill fill = {
		given->dst, given->pitch, given->width, given->height, given->value, given->elementSize};
	struct frmps_set form;
	CUresult r;

	if ((given->elementSize != 1 && given->elementSize != 2 && given->elementSize != 4) ||
		given->width == 0 || given->height == 0)
		return CUDA_ERROR_INVALID_VALUE;
	r = copy_fill_form(&fill, &form);
	if (r == CUDA_SUCCESS)
		*ret_params = (struct graph_params){.type = CU_GRAPH_NODE_TYPE_MEMSET, .set = *given};
	return r;
}

CUresult params_host(const CUDA_HOST_NODE_PARAMS *given, struct graph_params *ret_params)
{
	if (!given->fn)
		return CUDA_ERROR_INVALID_VALUE;
	*ret_params = (struct graph_params){.type = CU_GRAPH_NODE_TYPE_HOST, .host = *given};
	return CUDA_SUCCESS;
}

CUresult params_event(CUgraphNodeType type, CUevent event, struct graph_params *ret_params)
{
	if (!event_is_live(event))
		return CUDA_ERROR_INVALID_HANDLE;
	*ret_params = (struct graph_params){.type = type, .event = event};
	return CUDA_SUCCESS;
}

CUresult params_batch(const CUDA_BATCH_MEM_OP_NODE_PARAMS *given, struct graph_params *ret_params)
{
	struct graph_batch batch = {.count = given->count};

	if (!given->count || given->count > OPERATION_MOST || !given->paramArray || given->flags)
		return CUDA_ERROR_INVALID_VALUE;
	batch.operations = malloc(given->count * sizeof(*batch.operations));
	if (!batch.operations)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memcpy(batch.operations, given->paramArray, given->count * sizeof(*batch.operations));
	*ret_params = (struct graph_params){.type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, .batch = batch};
	return CUDA_SUCCESS;
}

static CUresult make_branch(CUgraphConditionalHandle handle, CUgraphConditionalNodeType kind, uint32_t count,
	struct graph_params *ret_params)
{
	struct graph_branch branch = {.handle = handle, .kind = kind, .count = count};
	size_t bytes = sizeof(*branch.form) + count * sizeof(uint32_t);

	branch.bodies = calloc(count, sizeof(struct client_graph *));
	branch.form = calloc(1, bytes);
	if (!branch.bodies || !branch.form) {
		free(branch.bodies);
		free(branch.form);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*branch.form = (struct frmps_condition){handle, (uint32_t)kind, count};
	*ret_params = (struct graph_params){.type = CU_GRAPH_NODE_TYPE_CONDITIONAL, .branch = branch};
	return CUDA_SUCCESS;
}

CUresult params_branch(const CUDA_CONDITIONAL_NODE_PARAMS *given, struct graph_params *ret_params)
{
	unsigned int most = given->type == CU_GRAPH_COND_TYPE_IF      ? 2
			    : given->type == CU_GRAPH_COND_TYPE_WHILE ? 1
								      : FRMPS_CONDITION_BODIES_MAX;

	if ((unsigned int)given->type > CU_GRAPH_COND_TYPE_SWITCH || !given->size || given->size > most)
		return CUDA_ERROR_INVALID_VALUE;
	return make_branch(given->handle, given->type, given->size, ret_params);
}

static CUresult clone_kernel(const struct graph_kernel *kernel, struct graph_params *ret_clone)
{
	struct graph_kernel clone = *kernel;

	clone.body = malloc(params_kernel_bytes(kernel));
	clone.pointers = calloc(kernel->pointer_count + 1, sizeof(void *));
	if (!clone.body || !clone.pointers) {
		free(clone.body);
		free(clone.pointers);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	memcpy(clone.body, kernel->body, params_kernel_bytes(kernel));
	move_pointers(&clone, kernel->pointers, arguments_of(kernel));
	*ret_clone = (struct graph_params){.type = CU_GRAPH_NODE_TYPE_KERNEL, .kernel = clone};
	return CUDA_SUCCESS;
}

CUresult params_clone(const struct graph_params *params, struct graph_params *ret_clone)
{
	CUDA_BATCH_MEM_OP_NODE_PARAMS batch;

	switch (params->type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		return clone_kernel(&params->kernel, ret_clone);
	case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
		batch = (CUDA_BATCH_MEM_OP_NODE_PARAMS){
			.count = params->batch.count, .paramArray = params->batch.operations};
		return params_batch(&batch, ret_clone);
	case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
		*ret_clone = *params;
		graph_memory_ref(params->memory);
		return CUDA_SUCCESS;
	case CU_GRAPH_NODE_TYPE_CONDITIONAL:
		return make_branch(
			params->branch.handle, params->branch.kind, params->branch.count, ret_clone);
	case CU_GRAPH_NODE_TYPE_GRAPH:
		*ret_clone = (struct graph_params){.type = CU_GRAPH_NODE_TYPE_GRAPH};
		return CUDA_SUCCESS;
	default:
		*ret_clone = *params;
		return CUDA_SUCCESS;
	}
}

void params_deinit(struct graph_params *params)
{
	if (params->type == CU_GRAPH_NODE_TYPE_KERNEL) {
		free(params->kernel.body);
		free(params->kernel.pointers);
	} else if (params->type == CU_GRAPH_NODE_TYPE_BATCH_MEM_OP) {
		free(params->batch.operations);
	} else if (params->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
		graph_memory_unref(params->memory);
	} else if (params->type == CU_GRAPH_NODE_TYPE_CONDITIONAL) {
		free(params->branch.bodies);
		free(params->branch.form);
	}
	*params = (struct graph_params){.type = CU_GRAPH_NODE_TYPE_EMPTY};
}

bool params_are_same(const struct graph_params *a, const struct graph_params *b)
{
	switch (a->type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		return is_same_kernel(&a->kernel, &b->kernel);
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		return memcmp(&a->copy.box, &b->copy.box, sizeof(a->copy.box)) == 0 &&
		       a->copy.how == b->copy.how;
	case CU_GRAPH_NODE_TYPE_MEMSET:
		return memcmp(&a->set, &b->set, sizeof(a->set)) == 0;
	case CU_GRAPH_NODE_TYPE_HOST:
		return a->host.fn == b->host.fn && a->host.userData == b->host.userData;
	case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
	case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
		return a->event == b->event;
	case CU_GRAPH_NODE_TYPE_EMPTY:
		return true;
	default:
		return false;
	}
}
