// See loader.h. Anything whose address a program may store has a fixed place from the load on
// (code_memory.h): the variables and functions that kernels refer to, and kernels that are referred
// to. The code of other kernels lies anywhere, and follows when somebody looks the kernel up: a
// library has thousands, of which a program uses a few.

#include "server/backend/cuda/loader.h"

#include <stdlib.h>
#include <string.h>

#include "protocol/hash.h"
#include "server/backend/cuda/code.h"
#include "server/backend/cuda/code_caches.h"
#include "server/backend/cuda/code_memory.h"
#include "server/backend/cuda/exception.h"
#include "server/backend/cuda/trampoline.h"
#include "server/backend/kernels.h"
#include "server/log.h"

#define PART_ALIGN 256u
/* Of a module's parts: some that would exhaust a session's addresses are loaded by the driver. The
 * functions of NCCL take 94 MiB on devices 9.0, 130 on 10.0. */
#define PARTS_MOST    (UINT64_C(256) << 20)
#define PIECE_BYTES   (UINT64_C(1) << 20)
#define ADDRESS_BYTES 8u
/* Parts of a module's place. */
#define BANK_MASK    UINT64_C(0xff)
#define ADDRESS_MASK UINT64_C(0xffffffffff00)
#define OFFSET_SHIFT 48u
/* Larger clusters only if a kernel allows them. */
#define CLUSTER_PORTABLE 8u

struct loader_module {
	struct backend_module *owner;
	struct fatbin_bytes cubin;
	struct kernels kernels;
	struct code_memory parts;
	struct trampoline_room constants; /* set NULL: its kernels read none */
	struct loader_kernel **placed;	  /* by kernel; NULL: not on the device */
	struct code_memory *code;	  /* of the kernels; no bytes where a kernel is among the parts */
	uint64_t code_hash;		  /* of the code among the parts; HASH_START: there is none */
};

static struct {
	bool is_open;
	size_t local; /* bytes of local memory that each thread of the context has at first */
	int shared;   /* bytes of shared memory that a block can have */
} loader;

bool loader_open(CUdevice device)
{
	if (driver.context_limit(&loader.local, CU_LIMIT_STACK_SIZE))
		loader.local = 0;
	if (driver.device_attribute(
		    &loader.shared, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, device))
		loader.shared = 0;
	loader.is_open = !code_memory_open(device) && trampolines_open(loader.shared, loader.local);
	return loader.is_open;
}

void loader_disable(void)
{
	loader.is_open = false;
	log_warning("code in memory does not run as it should on this device: the driver loads all modules, "
		    "and each load waits for the kernels that run");
}

void loader_open_caches(CUdevice device)
{
	code_caches_open(device, trampolines_find(NULL, 0, 0, 1, CODE_CACHES_CARRIED));
}

void loader_close(void)
{
	loader.is_open = false;
	code_caches_close();
	trampolines_close();
	code_memory_close();
}

/* ---- kernels on the device ---- */

static void unplace(struct loader_module *module, uint32_t index)
{
	code_memory_give(&module->code[index]);
	if (module->placed[index])
		free(module->placed[index]->tail_data);
	free(module->placed[index]);
}

static void note(const struct loader_module *module, const struct kernels_kernel *kernel, uint64_t at)
{
	const struct code code = {
		.module = module->owner, .entry = at, .bytes = kernels_code_bytes(&module->kernels, kernel)};

	if (module->owner && exception_is_ours())
		code_note(&code, kernel->name);
}

static struct loader_kernel *kernel_new(const struct kernels_kernel *from)
{
	struct loader_kernel *kernel = calloc(1, sizeof(*kernel));

	if (!kernel)
		return NULL;
	kernel->kernel.own = kernel;
	kernel->tail = from->tail;
	kernel->tail_bytes = from->tail_bytes;
	kernel->tail_data = malloc(from->tail_bytes + 1);
	kernel->shared = from->shared;
	memcpy(kernel->attributes, from->attributes, sizeof(kernel->attributes));
	kernel->shape = from->shape;
	kernel->is_plain = !from->attributes[CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET] &&
			   !from->attributes[CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH];
	if (kernel->tail_data)
		return kernel;
	free(kernel);
	return NULL;
}

static CUresult write_code(
	struct loader_module *module, const struct kernels_kernel *from, struct loader_kernel *kernel)
{
	uint64_t bytes = kernels_code_bytes(&module->kernels, from);
	uint8_t *code = malloc(bytes);
	CUresult result;

	if (!code)
		return CUDA_ERROR_OUT_OF_MEMORY;
	kernels_place(&module->kernels, from, code, kernel->tail_data);
	result = code_memory_write(kernel->code, code, bytes);
	if (from->is_named)
		module->code_hash = hash_add(module->code_hash, code, bytes);
	free(code);
	return result;
}

static const struct trampoline *trampoline_of(
	const struct loader_module *module, const struct kernels_kernel *kernel)
{
	return trampolines_find(module->constants.set, kernel->stack, kernel->registers, kernel->barriers,
		kernel->tail + kernel->tail_bytes + ADDRESS_BYTES);
}

static CUresult place(struct loader_module *module, uint32_t index)
{
	const struct kernels_kernel *from = &module->kernels.at[index];
	struct code_memory *memory = &module->code[index];
	struct loader_kernel *kernel = kernel_new(from);
	const struct trampoline *trampoline;
	CUresult code;

	if (!kernel)
		return CUDA_ERROR_OUT_OF_MEMORY;
	module->placed[index] = kernel;
	code = memory->at ? CUDA_SUCCESS
			  : code_memory_take(kernels_code_bytes(&module->kernels, from), memory);
	kernel->code = memory->at;
	if (!code && memory->bytes)
		code = code_memory_settle(memory, 0);
	if (!code)
		code = write_code(module, from, kernel);
	if (code) {
		unplace(module, index);
		module->placed[index] = NULL;
		*memory = (struct code_memory){0};
		return code;
	}
	/* can_enter() has checked that there is a trampoline. */
	trampoline = trampoline_of(module, from);
	kernel->kernel.kernel = trampoline->kernel;
	kernel->kernel.function = trampoline->function;
	kernel->carried = trampoline->carried;
	kernel->local = trampoline->local;
	note(module, from, kernel->code);
	return CUDA_SUCCESS;
}

/* ---- modules ---- */

/* Return: the end, for the next place */
static uint64_t end_of(uint64_t at, uint64_t bytes)
{
	return at + ((bytes + PART_ALIGN - 1) & ~(uint64_t)(PART_ALIGN - 1));
}

/* Where each part lies from an address on, and each kernel that something has the address of.
 * Return: bytes of that; PARTS_MOST: too many */
static uint64_t lay_out(struct loader_module *module, uint64_t at)
{
	struct kernels *kernels = &module->kernels;
	uint64_t end = at;

	for (uint32_t i = 0; i < kernels->part_count && end - at < PARTS_MOST; i++) {
		kernels->places[kernels->parts[i].section] = end;
		end = end_of(end, kernels->parts[i].bytes);
	}
	for (uint32_t i = 0; i < kernels->count && end - at < PARTS_MOST; i++) {
		if (!kernels->at[i].is_named)
			continue;
		kernels->places[kernels->at[i].section] = module->code[i].at = end;
		end = end_of(end, kernels_code_bytes(kernels, &kernels->at[i]));
	}
	if (kernels->constants && !module->constants.set) {
		kernels->places[kernels->constants] = end;
		end += kernels->constant_bytes;
	}
	return end - at < PARTS_MOST ? end - at : PARTS_MOST;
}

static CUresult write_zeros(uint64_t at, uint64_t count)
{
	uint64_t piece = count < PIECE_BYTES ? count : PIECE_BYTES;
	uint8_t *zeros = calloc(1, piece);
	CUresult code = zeros ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;

	for (uint64_t done = 0; !code && done < count; done += piece)
		code = code_memory_write(at + done, zeros, count - done < piece ? count - done : piece);
	free(zeros);
	return code;
}

static CUresult write_part(struct loader_module *module, const struct kernels_part *part)
{
	const struct kernels *kernels = &module->kernels;
	uint64_t at = kernels->places[part->section];
	uint8_t *bytes;
	CUresult code;

	if (part->is_zero)
		return write_zeros(at, part->bytes);
	bytes = malloc(part->bytes);
	if (!bytes)
		return CUDA_ERROR_OUT_OF_MEMORY;
	kernels_fill_part(kernels, part, bytes);
	code = code_memory_write(at, bytes, part->bytes);
	if (part->is_code)
		module->code_hash = hash_add(module->code_hash, bytes, part->bytes);
	free(bytes);
	return code;
}

static CUresult write_constants(const struct kernels *kernels)
{
	uint8_t *bytes = malloc(kernels->constant_bytes);
	CUresult code;

	if (!bytes)
		return CUDA_ERROR_OUT_OF_MEMORY;
	kernels_fill_constants(kernels, bytes);
	code = code_memory_write(kernels->places[kernels->constants], bytes, kernels->constant_bytes);
	free(bytes);
	return code;
}

static CUresult place_named(struct loader_module *module)
{
	CUresult code = CUDA_SUCCESS;

	for (uint32_t i = 0; !code && i < module->kernels.count; i++)
		if (module->kernels.at[i].is_named)
			code = place(module, i);
	return code || module->code_hash == HASH_START
		       ? code
		       : code_memory_settle(&module->parts, module->code_hash);
}

/* The description of a module's place: the low bits of the address are the number of the bank with
 * its constants, and the high bits their offset. */
static uint64_t place_of(const struct loader_module *module, uint64_t at)
{
	return at | module->constants.bank | (uint64_t)module->constants.offset << OFFSET_SHIFT;
}

/* @wish: of another executor, or WIRE_CODE_ASKED */
static bool take_room(struct loader_module *module, uint64_t wish, uint64_t window)
{
	struct kernels *kernels = &module->kernels;
	struct trampoline_room *room = &module->constants;
	bool is_taken;

	*room = (struct trampoline_room){.bank = wish & BANK_MASK,
		.offset = (uint32_t)(wish >> OFFSET_SHIFT),
		.bytes = (uint32_t)kernels->constant_bytes};
	is_taken =
		wish == WIRE_CODE_ASKED
			? trampolines_take_room(room->bytes, kernels->constant_offset_most, window, room)
			: room->offset <= kernels->constant_offset_most && trampolines_take_same_room(room);
	kernels->constant_offset = room->offset;
	return is_taken;
}

/* @load: code: the wish, and the result */
static CUresult take_place(struct loader_module *module, struct backend_load *load, enum load_reason *ret_why)
{
	uint64_t bytes = lay_out(module, 0);
	CUresult code = CUDA_SUCCESS;

	if (bytes == PARTS_MOST) {
		*ret_why = LOAD_REASON_LARGE;
		return CUDA_ERROR_NOT_SUPPORTED;
	}
	*ret_why = LOAD_REASON_ADDRESSES;
	if (bytes)
		code = code_memory_take_at(load->window, load->code & ADDRESS_MASK, bytes, &module->parts);
	if (code)
		return code;
	load->constants = module->constants.set ? trampolines_room_at(&module->constants) : 0;
	load->code = place_of(module, bytes ? module->parts.at : code_memory_range(load->window));
	lay_out(module, module->parts.at);
	return CUDA_SUCCESS;
}

static CUresult put_parts(struct loader_module *module)
{
	struct kernels *kernels = &module->kernels;
	CUresult code = CUDA_SUCCESS;

	if (module->constants.set)
		kernels->places[kernels->constants] = trampolines_room_at(&module->constants);
	for (uint32_t i = 0; !code && i < kernels->part_count; i++)
		code = write_part(module, &kernels->parts[i]);
	if (!code && kernels->constant_bytes)
		code = write_constants(kernels);
	return code ? code : place_named(module);
}

/* True if there is a trampoline for each kernel, so that no lookup fails. */
static bool can_enter(const struct loader_module *module, enum load_reason *ret_why)
{
	for (uint32_t i = 0; i < module->kernels.count; i++) {
		const struct kernels_kernel *one = &module->kernels.at[i];

		if (trampoline_of(module, one))
			continue;
		*ret_why = one->stack > loader.local ? LOAD_REASON_LOCAL : LOAD_REASON_TRAMPOLINE;
		return false;
	}
	return true;
}

static CUresult load_parts(struct loader_module *module, struct backend_load *load, enum load_reason *ret_why)
{
	CUresult code = kernels_open(&module->kernels, module->cubin.at, module->cubin.count);

	*ret_why = module->kernels.why;
	if (code)
		return code;
	if (module->kernels.reads_constants && !take_room(module, load->code, load->window)) {
		*ret_why = LOAD_REASON_NO_BANK;
		return CUDA_ERROR_NOT_SUPPORTED;
	}
	if (!can_enter(module, ret_why))
		return CUDA_ERROR_NOT_SUPPORTED;
	module->placed = calloc(module->kernels.count + 1, sizeof(module->placed[0]));
	module->code = calloc(module->kernels.count + 1, sizeof(module->code[0]));
	if (!module->placed || !module->code)
		return CUDA_ERROR_OUT_OF_MEMORY;
	code = take_place(module, load, ret_why);
	return code ? code : put_parts(module);
}

static CUresult load_once(const struct fatbin_bytes *cubin, struct backend_module *owner,
	struct backend_load *load, struct loader_module **ret_module, enum load_reason *ret_why)
{
	struct loader_module *module = calloc(1, sizeof(*module));
	CUresult code;

	if (!module)
		return CUDA_ERROR_OUT_OF_MEMORY;
	module->owner = owner;
	module->cubin = *cubin;
	module->code_hash = HASH_START;
	code = load_parts(module, load, ret_why);
	if (!code) {
		*ret_module = module;
		return CUDA_SUCCESS;
	}
	module->cubin.at = NULL; /* the caller's */
	loader_unload(module);
	return code;
}

CUresult loader_load(const struct fatbin_bytes *cubin, struct backend_module *owner,
	struct backend_load *load, struct loader_module **ret_module, enum load_reason *ret_why)
{
	uint64_t wish = load->code;
	CUresult code;

	*ret_why = LOAD_REASON_SWITCHED_OFF;
	if (!loader.is_open)
		return CUDA_ERROR_NOT_SUPPORTED;
	code_caches_tend();
	code = load_once(cubin, owner, load, ret_module, ret_why);
	if (code != CUDA_ERROR_NOT_SUPPORTED || *ret_why != LOAD_REASON_ADDRESSES || !code_caches_renew())
		return code;
	load->code = wish;
	return load_once(cubin, owner, load, ret_module, ret_why);
}

void loader_unload(struct loader_module *module)
{
	if (!module)
		return;
	for (uint32_t i = 0; module->placed && module->code && i < module->kernels.count; i++)
		unplace(module, i);
	code_memory_give(&module->parts);
	trampolines_give_room(&module->constants);
	free(module->placed);
	free(module->code);
	kernels_close(&module->kernels);
	free(module->cubin.at);
	free(module);
	code_caches_tend();
}

/* ---- lookups ---- */

CUresult loader_find(struct loader_module *module, const char *name, struct backend_function **ret_function,
	struct backend_function_info *ret_info)
{
	const struct kernels_kernel *found = kernels_find(&module->kernels, name);
	uint32_t index = found ? (uint32_t)(found - module->kernels.at) : 0;
	CUresult code = CUDA_SUCCESS;

	if (!found)
		return CUDA_ERROR_NOT_FOUND;
	if (!kernels_parameters(&module->kernels, found, ret_info))
		return CUDA_ERROR_INVALID_IMAGE;
	if (!module->placed[index])
		code = place(module, index);
	if (code)
		return code;
	memcpy(ret_info->attributes, module->placed[index]->attributes, sizeof(ret_info->attributes));
	*ret_function = (struct backend_function *)(void *)&module->placed[index]->kernel;
	return CUDA_SUCCESS;
}

CUresult loader_global(struct loader_module *module, const char *name, struct backend_global *ret_global)
{
	bool is_constant;

	*ret_global = (struct backend_global){0};
	return kernels_variable(
		       &module->kernels, name, &is_constant, &ret_global->address, &ret_global->bytes)
		       ? CUDA_SUCCESS
		       : CUDA_ERROR_NOT_FOUND;
}

uint32_t loader_count(const struct loader_module *module)
{
	return module->kernels.count;
}

const char *loader_name(const struct loader_module *module, uint32_t index)
{
	return module->kernels.at[index].name;
}

/* ---- attributes ---- */

/* A preference for shared memory or cache, in percent; -1: none. */
static CUresult set_cache(struct loader_kernel *kernel, int64_t value)
{
	static const int32_t percent[] = {-1, 100, 0, 50};

	if (value < 0 || value > CU_FUNC_CACHE_PREFER_EQUAL)
		return CUDA_ERROR_INVALID_VALUE;
	kernel->attributes[CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT] = percent[value];
	kernel->is_plain = false;
	return CUDA_SUCCESS;
}

CUresult loader_set(struct loader_kernel *kernel, uint32_t attribute, int64_t value)
{
	switch (attribute) {
	case 1000:
		return set_cache(kernel, value);
	case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
		if (value < 0 || value > loader.shared - (int64_t)kernel->shared)
			return CUDA_ERROR_INVALID_VALUE;
		break;
	case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
		if (value < -1 || value > 100)
			return CUDA_ERROR_INVALID_VALUE;
		kernel->is_plain = false;
		break;
	case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
	case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
	case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
		if (value < 0 || value > 16)
			return CUDA_ERROR_INVALID_VALUE;
		kernel->is_plain = false;
		break;
	case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
		value = value != 0;
		break;
	case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
		if (value < 0 || value > CU_CLUSTER_SCHEDULING_POLICY_LOAD_BALANCING)
			return CUDA_ERROR_INVALID_VALUE;
		kernel->is_plain = false;
		break;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
	kernel->attributes[attribute] = (int32_t)value;
	return CUDA_SUCCESS;
}

/* ---- launches ---- */

static const struct frmps_launch_attribute *find_attribute(const struct backend_launch *launch, uint32_t id)
{
	for (uint32_t i = 0; i < launch->attribute_count; i++)
		if (launch->attributes[i].id == id)
			return &launch->attributes[i];
	return NULL;
}

CUresult loader_check_cluster(const struct loader_kernel *kernel, const CUlaunchAttributeValue *cluster)
{
	const int32_t *own = &kernel->attributes[CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH];
	uint64_t blocks, most = kernel->shape.cluster_most;

	if (!cluster)
		return own[0] || !kernel->attributes[CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET]
			       ? CUDA_SUCCESS
			       : CUDA_ERROR_INVALID_CLUSTER_SIZE;
	if (own[0] &&
		(cluster->clusterDim.x != (unsigned)own[0] || cluster->clusterDim.y != (unsigned)own[1] ||
			cluster->clusterDim.z != (unsigned)own[2]))
		return CUDA_ERROR_INVALID_CLUSTER_SIZE;
	blocks = (uint64_t)cluster->clusterDim.x * cluster->clusterDim.y * cluster->clusterDim.z;
	if (!most && !kernel->attributes[CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED])
		most = CLUSTER_PORTABLE;
	return most && blocks > most ? CUDA_ERROR_INVALID_CLUSTER_SIZE : CUDA_SUCCESS;
}

static CUresult check_clusters(const struct loader_kernel *kernel, const struct backend_launch *launch)
{
	const struct frmps_launch_attribute *given =
		find_attribute(launch, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
	CUlaunchAttributeValue value;

	if (given)
		memcpy(&value, &given->value, sizeof(value));
	return loader_check_cluster(kernel, given ? &value : NULL);
}

static bool has_its_block(const struct loader_kernel *kernel, const struct backend_launch *launch)
{
	const uint32_t *only = kernel->shape.block;

	return !only[0] || !memcmp(launch->block, only, sizeof(launch->block));
}

CUresult loader_check(const struct loader_kernel *kernel, const struct backend_launch *launch)
{
	uint64_t threads = (uint64_t)launch->block[0] * launch->block[1] * launch->block[2];

	if (!has_its_block(kernel, launch) ||
		threads > (uint64_t)kernel->attributes[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK] ||
		launch->shared_bytes >
			(uint32_t)kernel->attributes[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES])
		return CUDA_ERROR_INVALID_VALUE;
	return launch->attribute_count || !kernel->is_plain ? check_clusters(kernel, launch) : CUDA_SUCCESS;
}

void loader_carry(const struct loader_kernel *kernel, const struct backend_launch *launch, uint8_t *ret)
{
	uint32_t bytes = launch->info->argument_bytes, end = kernel->tail + kernel->tail_bytes,
		 address = kernel->carried - ADDRESS_BYTES;

	if (bytes)
		memcpy(ret, launch->arguments, bytes);
	memset(ret + bytes, 0, kernel->tail - bytes);
	memcpy(ret + kernel->tail, kernel->tail_data, kernel->tail_bytes);
	memset(ret + end, 0, address - end);
	memcpy(ret + address, &kernel->code, sizeof(kernel->code));
}

/* Return: a place for an attribute; NULL: the launch sets the attribute itself */
static CUlaunchAttribute *add_attribute(
	CUlaunchAttribute *attributes, unsigned *io_count, CUlaunchAttributeID id)
{
	for (unsigned i = 0; i < *io_count; i++)
		if (attributes[i].id == id)
			return NULL;
	memset(&attributes[*io_count], 0, sizeof(attributes[0]));
	attributes[*io_count].id = id;
	return &attributes[(*io_count)++];
}

void loader_attributes(
	const struct loader_kernel *kernel, CUlaunchAttribute *io_attributes, unsigned *io_count)
{
	const int32_t *own = kernel->attributes;
	CUlaunchAttribute *added;

	if (own[CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH] > 0 &&
		(added = add_attribute(io_attributes, io_count, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION))) {
		added->value.clusterDim.x = (unsigned)own[CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH];
		added->value.clusterDim.y = (unsigned)own[CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT];
		added->value.clusterDim.z = (unsigned)own[CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH];
	}
	if (own[CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE] &&
		(added = add_attribute(
			 io_attributes, io_count, CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE)))
		added->value.clusterSchedulingPolicyPreference = (CUclusterSchedulingPolicy)
			own[CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE];
	if (own[CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT] >= 0 &&
		(added = add_attribute(
			 io_attributes, io_count, CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT)))
		added->value.sharedMemCarveout =
			(unsigned)own[CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT];
}
