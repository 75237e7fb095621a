// Properties of contexts. Runs on the program's threads. Fields that the program sets are not
// guarded: two threads that set the same field leave either value.

#include "client/state/context.h"

#include "client/state/context_table.h"
#include "client/state/limit.h"
#include "client/state/session.h"

word32 context_greens;

struct context context_table[CONTEXT_SLOTS] = {[0 ... CONTEXT_SLOTS - 1] = {.cls = CLS_MAP_INIT}};

struct context *context_primary_slot(int device)
{
	return device_get(device) ? &context_table[device] : NULL;
}

CUcontext context_primary(int device)
{
	struct context *context = context_primary_slot(device);

	return context ? context_handle(context) : NULL;
}

/* A primary context has its device before any thread retains it. */
static int device_of(const struct context *context)
{
	return context_is_primary(context) ? (int)(context - context_table) : context->device;
}

/* A reset ends what is within a primary context. */
static bool has_primary(const struct context *context)
{
	struct context *primary = &context_table[context->device];

	return word_acquire(&primary->life) == CONTEXT_LIVE && word_acquire(&primary->id) == context->within;
}

static bool is_live(struct context *context)
{
	return word_acquire(&context->life) == CONTEXT_LIVE &&
	       (!context_is_green(context) || has_primary(context));
}

bool context_is_live(CUcontext handle)
{
	struct context *context = context_resolve(handle);

	return context && is_live(context);
}

CUcontext context_owner(CUcontext handle)
{
	const struct context *context = context_resolve(handle);

	return context && context_is_green(context) ? context_primary(context->device) : handle;
}

CUcontext context_green(CUcontext handle)
{
	const struct context *context = context_resolve(handle);

	return context && context_is_green(context) ? handle : NULL;
}

uint64_t context_part(CUcontext green)
{
	return green ? context_resolve(green)->part.mask : 0;
}

uint32_t context_sms(CUcontext green)
{
	return part_count(&context_resolve(green)->part);
}

struct client_stream *context_default_stream(CUcontext handle)
{
	const struct context *context = context_resolve(handle);

	return context && context_is_green(context) ? context->own : NULL;
}

bool context_enter(CUcontext handle)
{
	struct context *context = context_resolve(handle);

	if (!context)
		return false;
	session_use(context->session ? context->session : &sessions[device_of(context)]);
	return is_live(context);
}

bool context_is_known(CUcontext handle)
{
	return context_resolve(handle) != NULL;
}

uint64_t context_id(CUcontext handle)
{
	struct context *context = context_resolve(handle);

	return context ? word_acquire(&context->id) : 0;
}

int context_device(CUcontext handle)
{
	struct context *context = context_resolve(handle);

	return context ? device_of(context) : -1;
}

/* As the driver (580) shows these: host memory can always be mapped, which a new context's flags do
 * not say. */
unsigned int context_flags(CUcontext handle)
{
	struct context *context = context_resolve(handle);

	if (!context)
		return 0;
	return context->flags | (context_is_primary(context) ? CU_CTX_MAP_HOST : 0);
}

void context_set_flags(CUcontext handle, unsigned int flags)
{
	struct context *context = context_resolve(handle);

	if (context)
		context->flags = context_is_primary(context) ? flags : flags | CU_CTX_MAP_HOST;
}

CUresult context_find_limit(CUcontext handle, CUlimit limit, struct context **ret_context,
	const struct client_device **ret_device)
{
	struct context *context = context_resolve(handle);
	const struct client_device *device = context ? device_get(context_device(handle)) : NULL;

	if (!device)
		return CUDA_ERROR_INVALID_CONTEXT;
	if ((unsigned int)limit >= CU_LIMIT_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	if ((unsigned int)limit >= device->limit_count || device->limits[limit] == LIMIT_NONE)
		return CUDA_ERROR_UNSUPPORTED_LIMIT;
	*ret_context = context;
	*ret_device = device;
	return CUDA_SUCCESS;
}

CUresult context_limit(CUcontext handle, CUlimit limit, size_t *ret_value)
{
	const struct client_device *device;
	struct context *context;
	CUresult r = context_find_limit(handle, limit, &context, &device);

	if (r == CUDA_SUCCESS)
		*ret_value = context->limit_set[limit] ? context->limits[limit] : device->limits[limit];
	return r;
}

CUfunc_cache context_cache_config(CUcontext handle)
{
	struct context *context = context_resolve(handle);

	return context ? context->cache_config : CU_FUNC_CACHE_PREFER_NONE;
}

void context_set_cache_config(CUcontext handle, CUfunc_cache config)
{
	struct context *context = context_resolve(handle);

	if (context)
		context->cache_config = config;
}

CUsharedconfig context_shared_config(CUcontext handle)
{
	struct context *context = context_resolve(handle);

	return context ? context->shared_config : CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE;
}

void context_set_shared_config(CUcontext handle, CUsharedconfig config)
{
	struct context *context = context_resolve(handle);

	if (context)
		context->shared_config = config;
}

void context_primary_state(int device, unsigned int *ret_flags, int *ret_active)
{
	struct context *context = context_primary_slot(device);

	*ret_flags = context ? context->flags : 0;
	*ret_active = context && word_acquire(&context->life) == CONTEXT_LIVE;
}
