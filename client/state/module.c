// Loaded modules: their ids at the service, the results of lookups, and their end. Runs on the
// program's threads.
//
// Invariants: an id is set in `ids` from before LoadModule is sent until the service has answered
// UnloadModule, and while a library is asleep; a module is in the registry exactly while it is
// live; kernels and globals are only ever added to a live module.

#include "client/state/module.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/link/control.h"
#include "client/state/code_cache.h"
#include "client/state/context.h"
#include "client/state/function.h"
#include "client/state/instance.h"
#include "client/state/log.h"
#include "client/state/managed.h"
#include "client/state/memory.h"
#include "client/state/ranges.h"
#include "client/state/renew.h"
#include "client/state/session.h"
#include "client/submit/wait.h"
#include "client/text/text.h"
#include "shm/text.h"

struct client_global {
	struct client_global *next;
	CUdeviceptr address;
	size_t bytes;
	char name[];
};

_Static_assert(sizeof(struct client_module) <= 1u << MODULE_SHIFT, "a module object fits its place");

static struct slab module_slab = SLAB_INIT(MODULE_SHIFT, 65536);

static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;
static struct client_module *registry;

struct client_module *module_find(CUmodule handle)
{
	return slab_find(&module_slab, handle, MODULE_MAGIC);
}

struct client_module *library_find(CUlibrary handle)
{
	struct client_module *module = slab_find(&module_slab, handle, MODULE_MAGIC);

	return module && module->library ? module : NULL;
}

/* 0 when all are in use. */
static uint32_t id_take(void)
{
	uint64_t *ids = session_self()->module_ids.words;
	uint32_t found = 0;

	pthread_mutex_lock(&registry_lock);
	for (uint32_t id = 1; id <= MODULE_IDS; ++id) {
		if (ids[id / 64] & UINT64_C(1) << id % 64)
			continue;
		ids[id / 64] |= UINT64_C(1) << id % 64;
		found = id;
		break;
	}
	pthread_mutex_unlock(&registry_lock);
	return found;
}

static void id_give(struct session *session, uint32_t id)
{
	uint64_t *ids = session->module_ids.words;

	pthread_mutex_lock(&registry_lock);
	ids[id / 64] &= ~(UINT64_C(1) << id % 64);
	pthread_mutex_unlock(&registry_lock);
}

static void registry_add(struct client_module *module)
{
	pthread_mutex_lock(&registry_lock);
	module->next = registry;
	registry = module;
	atomic_store_explicit(&module->object.live, MODULE_MAGIC, memory_order_release);
	pthread_mutex_unlock(&registry_lock);
}

/* Ends the handle; false for the second of two threads. */
static bool registry_remove(struct client_module *module)
{
	bool found = false;

	pthread_mutex_lock(&registry_lock);
	for (struct client_module **at = &registry; *at && !found; at = &(*at)->next) {
		if (*at != module)
			continue;
		*at = module->next;
		atomic_store_explicit(&module->object.live, 0, memory_order_release);
		found = true;
		break;
	}
	pthread_mutex_unlock(&registry_lock);
	return found;
}

/* A live module of the context; NULL without one. */
static struct client_module *registry_of_context(CUcontext context)
{
	struct client_module *module;

	pthread_mutex_lock(&registry_lock);
	for (module = registry; module; module = module->next)
		if (!module->library && module->context == context)
			break;
	pthread_mutex_unlock(&registry_lock);
	return module;
}

/* Asks the service and keeps errno; the caller frees the answer. */
static CUresult ask(struct wire_message *request, struct control_answer *answer)
{
	int saved = errno;
	CUresult result;

	if (!answer)
		return CUDA_ERROR_OUT_OF_MEMORY;
	answer->message.type = WIRE_NONE;
	result = control_call(request, answer);
	errno = saved;
	return result;
}

/* As ask(), for the load of a module's image. */
static CUresult ask_load(struct image *image, struct wire_message *request, struct control_answer *answer)
{
	int saved = errno;
	CUresult result;

	if (!answer)
		return CUDA_ERROR_OUT_OF_MEMORY;
	answer->message.type = WIRE_NONE;
	result = image_send(image, request, &request->load_module.file, answer);
	errno = saved;
	return result;
}

/* Allocates the memory that the module's variables need, if the answer has a size. Without memory
 * the service refuses the next request and drops the image. Return: true to ask again. */
static bool make_room(struct client_module *module, CUresult result, const struct control_answer *answer,
	struct wire_load_module *load)
{
	if (result != CUDA_ERROR_NOT_READY || load->variables || answer->message.type != WIRE_REPLY ||
		answer->message.reply.values.count < 2)
		return false;
	load->variables = WIRE_VARIABLES_OF_DRIVER;
	if (answer->message.reply.values.at[1]) {
		if (managed_alloc(NULL, answer->message.reply.values.at[0], CU_MEM_ATTACH_GLOBAL,
			    &module->managed) == CUDA_SUCCESS)
			load->variables = module->managed;
	} else if (memory_alloc_block(answer->message.reply.values.at[0], &module->variables) ==
		   CUDA_SUCCESS) {
		load->variables = memory_block_address(module->variables);
	}
	return true;
}

static void leave_room(struct client_module *module)
{
	if (module->variables)
		memory_free_block(module->variables);
	if (module->managed)
		managed_free(module->managed);
	module->variables = NULL;
	module->managed = 0;
}

static bool is_moved(const struct control_answer *answer)
{
	return answer->message.reply.values.count > 3 && answer->message.reply.values.at[3];
}

static CUresult send_load(struct client_module *module, struct image *image, struct jit *jit,
	struct control_answer *answer, uint64_t *ret_uses)
{
	struct wire_message request = {.type = WIRE_LOAD_MODULE};
	const char *text = "";
	CUresult result;

	request.load_module.module = module->id;
	request.load_module.kind = module->library;
	request.load_module.bytes = image->bytes;
	request.load_module.options.at = jit->options;
	request.load_module.options.count = jit->count;
	result = ask_load(image, &request, answer);
	if (answer && make_room(module, result, answer, &request.load_module))
		result = ask_load(image, &request, answer);
	/* A request that the service did not finish in time may still use that memory: the memory
	 * is never reused. */
	if (result == CUDA_ERROR_SYSTEM_NOT_READY) {
		module->variables = NULL;
		module->managed = 0;
	} else if (result != CUDA_SUCCESS || !is_moved(answer)) {
		leave_room(module);
	}
	*ret_uses = result == CUDA_SUCCESS && answer->message.reply.values.count > 1
			    ? answer->message.reply.values.at[1]
			    : 0;
	if (answer && answer->message.type == WIRE_REPLY && answer->message.reply.text)
		text = answer->message.reply.text;
	jit_end(jit, result == CUDA_SUCCESS, text);
	if (result == CUDA_ERROR_NO_BINARY_FOR_GPU && image->relocatable)
		client_log(CLIENT_LOG_ERROR,
			"separately compiled device code has no machine code for this device, "
			"and linking it anew is not supported");
	return result;
}

/* No kernel of the module runs any more. */
static CUresult send_unload(struct client_module *module)
{
	struct wire_message request = {.type = WIRE_UNLOAD_MODULE};
	struct control_answer *answer = control_answer_new();
	CUresult result;

	request.symbol.module = module->id;
	result = ask(&request, answer);
	control_answer_free(answer);
	if (result == CUDA_SUCCESS)
		leave_room(module);
	return result;
}

/* The kernels of a new module print or assert: makes the ring for text, as large as the program
 * wants. Without a ring for assertions the module still loads: a failed assertion is an illegal
 * access then. */
static CUresult receive_text(struct client_module *module, uint64_t uses)
{
	CUcontext context = module->context ? module->context : context_current();
	size_t bytes = 0;
	CUresult result;

	if (!(uses & SHM_TEXT_PRINTS)) {
		result = uses ? text_open_small() : CUDA_SUCCESS;
		if (result != CUDA_ERROR_OUT_OF_MEMORY)
			return result;
		client_log(
			CLIENT_LOG_INFO, "there is no pinned memory for the text of assertions in kernels");
		return CUDA_SUCCESS;
	}
	if (context_limit(context, CU_LIMIT_PRINTF_FIFO_SIZE, &bytes) != CUDA_SUCCESS)
		bytes = TEXT_BYTES_DEFAULT;
	return text_open(bytes);
}

/* Loads an image. If the service compiles a text, the answer carries the code, which is cached. */
static CUresult load_text(
	struct client_module *module, struct image *image, struct jit *jit, uint64_t *ret_uses)
{
	struct control_answer *answer = control_answer_new();
	CUresult result = send_load(module, image, jit, answer, ret_uses);

	if (result == CUDA_SUCCESS && answer->packet.fd_count)
		code_cache_keep(image, jit, answer->packet.fds[0]);
	control_answer_free(answer);
	return result;
}

/* As load_text(), with the cached code of a text that was compiled before. */
static bool load_cached(
	struct client_module *module, const struct image *image, struct jit *jit, uint64_t *ret_uses)
{
	struct control_answer *answer;
	struct image code;
	CUresult result;

	if (!code_cache_find(image, jit, &code))
		return false;
	answer = control_answer_new();
	result = send_load(module, &code, jit, answer, ret_uses);
	control_answer_free(answer);
	image_close(&code);
	return result == CUDA_SUCCESS;
}

/* Loads the image, and makes the ring for its text. */
static CUresult load_image(struct client_module *module, struct image *image, struct jit *jit)
{
	uint64_t uses;
	CUresult result = CUDA_SUCCESS;

	if (!load_cached(module, image, jit, &uses))
		result = load_text(module, image, jit, &uses);
	if (result != CUDA_SUCCESS)
		return result;
	result = receive_text(module, uses);
	if (result != CUDA_SUCCESS)
		send_unload(module);
	return result;
}

CUresult module_load(
	struct image *image, CUcontext context, struct jit *jit, struct client_module **ret_module)
{
	struct client_module *module;
	CUresult result;
	uint32_t id = id_take();

	if (id == 0)
		return CUDA_ERROR_OUT_OF_MEMORY;
	module = slab_take(&module_slab);
	if (!module) {
		id_give(session_self(), id);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	module->id = id;
	module->library = !context;
	module->context = context;
	module->session = session_self();
	pthread_mutex_init(&module->lock, NULL);
	result = load_image(module, image, jit);
	if (result != CUDA_SUCCESS) {
		id_give(session_self(), id);
		slab_give(&module_slab, module);
		return result;
	}
	if (module->library)
		module->renewal = renewal_new(image, jit);
	registry_add(module);
	*ret_module = module;
	return CUDA_SUCCESS;
}

static void free_globals(struct client_module *module)
{
	struct client_global *global;

	while ((global = module->globals)) {
		module->globals = global->next;
		free(global);
	}
}

/* Handles of the module's kernels end with it. */
static void free_contents(struct client_module *module, bool reusable)
{
	struct client_function *function;

	while ((function = module->functions)) {
		module->functions = function->next;
		function_free(function, reusable);
	}
	free_globals(module);
}

static word64 unloads;

uint64_t module_unloads(void)
{
	return word_acquire(&unloads);
}

CUresult module_unload(struct client_module *module)
{
	SESSION_SCOPE(module->session);
	CUresult result;

	if (!registry_remove(module))
		return CUDA_ERROR_INVALID_HANDLE;
	instance_forget(module);
	atomic_fetch_add_explicit(&unloads, 1, memory_order_release);
	/* An error here is the sticky error, which send_unload() returns next. */
	wait_all();
	ranges_remove_owner(module);
	result = word_acquire(&module->sleep) == MODULE_ASLEEP ? CUDA_SUCCESS : send_unload(module);
	module->renewal = renewal_free(module->renewal);
	pthread_mutex_lock(&module->lock);
	free_contents(module, result == CUDA_SUCCESS);
	pthread_mutex_unlock(&module->lock);
	/* A module that the service may still have keeps its id and its place. */
	if (result != CUDA_SUCCESS)
		return result;
	id_give(module->session, module->id);
	pthread_mutex_destroy(&module->lock);
	slab_give(&module_slab, module);
	return CUDA_SUCCESS;
}

void module_release_context(CUcontext context)
{
	struct client_module *module;

	if (!context)
		return;
	while ((module = registry_of_context(context)))
		module_unload(module);
}

/* ---- libraries between two contexts ---- */

/* Held while a library is put to sleep or woken; other locks are taken inside this lock. */
static pthread_mutex_t waking = PTHREAD_MUTEX_INITIALIZER;

/* Under the waking lock. */
static CUresult put_to_sleep(struct client_module *module)
{
	SESSION_SCOPE(module->session);
	CUresult result;

	atomic_fetch_add_explicit(&unloads, 1, memory_order_release);
	ranges_remove_owner(module);
	pthread_mutex_lock(&module->lock);
	for (struct client_function *f = module->functions; f; f = f->next)
		function_sleep(f);
	free_globals(module);
	pthread_mutex_unlock(&module->lock);
	result = send_unload(module);
	word_release(&module->home, 0);
	word_release(&module->sleep, result == CUDA_SUCCESS ? MODULE_ASLEEP : MODULE_LOST);
	return result;
}

/* A library without lookups has run nothing and is unchanged since the load. */
static bool is_used(struct client_module *module)
{
	bool used;

	pthread_mutex_lock(&module->lock);
	used = module->functions || module->globals;
	pthread_mutex_unlock(&module->lock);
	return used;
}

/* @home: as below */
static struct client_module *next_used(uint64_t home)
{
	struct client_module *module;

	pthread_mutex_lock(&registry_lock);
	for (module = registry; module; module = module->next)
		if (module->library && word_acquire(&module->sleep) == MODULE_AWAKE && is_used(module) &&
			(!home || word_acquire(&module->home) == home))
			break;
	pthread_mutex_unlock(&registry_lock);
	return module;
}

void module_settle_libraries(const struct session *session, uint64_t home)
{
	struct client_module *module;

	pthread_mutex_lock(&registry_lock);
	for (module = registry; module; module = module->next)
		if (module->library && module->session == session && !word_relaxed(&module->home) &&
			is_used(module))
			word_release(&module->home, home);
	pthread_mutex_unlock(&registry_lock);
}

CUresult module_sleep_libraries(uint64_t home)
{
	CUresult result = CUDA_SUCCESS, r;
	struct client_module *module;

	pthread_mutex_lock(&waking);
	while ((module = next_used(home))) {
		r = put_to_sleep(module);
		if (r != CUDA_SUCCESS)
			result = r;
	}
	pthread_mutex_unlock(&waking);
	return result;
}

CUresult module_load_instance(
	struct client_module *library, CUcontext context, struct client_module **ret_instance)
{
	SESSION_SCOPE(&sessions[context_device(context)]);
	struct image image;
	struct jit jit;
	CUresult result = renewal_open(library->renewal, &image, &jit);

	if (result != CUDA_SUCCESS)
		return result;
	result = module_load(&image, context, &jit, ret_instance);
	image_close(&image);
	if (result == CUDA_SUCCESS)
		(*ret_instance)->base = library;
	return result;
}

static CUresult load_again(struct client_module *module)
{
	struct image image;
	struct jit jit;
	CUresult result = renewal_open(module->renewal, &image, &jit);

	if (result != CUDA_SUCCESS)
		return result;
	result = load_image(module, &image, &jit);
	image_close(&image);
	return result;
}

static CUresult wake_functions(struct client_module *module)
{
	struct client_function *function;
	CUresult result = CUDA_SUCCESS;

	pthread_mutex_lock(&module->lock);
	function = module->functions;
	pthread_mutex_unlock(&module->lock);
	/* Elements are only ever added, at the front. */
	for (; function && result == CUDA_SUCCESS; function = function->next)
		result = function_renew(function, module->id);
	return result;
}

/* Under the waking lock. */
static CUresult wake_up(struct client_module *module)
{
	SESSION_SCOPE(module->session);
	CUresult result = load_again(module);

	if (result != CUDA_SUCCESS)
		return result;
	result = wake_functions(module);
	if (result == CUDA_SUCCESS)
		word_release(&module->sleep, MODULE_AWAKE);
	else
		put_to_sleep(module);
	return result;
}

/* First line of calls that use a library. */
static CUresult wake(struct client_module *module)
{
	CUresult result = CUDA_SUCCESS;
	uint32_t sleep;

	if (__builtin_expect(word_acquire(&module->sleep) == MODULE_AWAKE, 1))
		return CUDA_SUCCESS;
	pthread_mutex_lock(&waking);
	sleep = word_relaxed(&module->sleep);
	if (sleep == MODULE_ASLEEP)
		result = wake_up(module);
	else if (sleep == MODULE_LOST)
		result = CUDA_ERROR_INVALID_HANDLE;
	pthread_mutex_unlock(&waking);
	return result;
}

CUresult function_wake(const void *handle, struct client_function **ret_function)
{
	struct client_function *function = slab_find(&function_slab, handle, FUNCTION_ASLEEP);
	CUresult result = function ? wake(function->module) : CUDA_ERROR_INVALID_HANDLE;

	if (result != CUDA_SUCCESS)
		return result;
	*ret_function = function_find(handle);
	return *ret_function ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

/* ---- names ---- */

static uint32_t hash_name(const char *name)
{
	uint32_t hash = UINT32_C(2166136261);

	for (; *name; ++name)
		hash = (hash ^ (uint8_t)*name) * UINT32_C(16777619);
	return hash;
}

/* Caller holds the lock. */
static struct client_function *known_function(
	const struct client_module *module, const char *name, uint32_t hash)
{
	struct client_function *function;

	for (function = module->functions; function; function = function->next)
		if (function->name_hash == hash && strcmp(function->name, name) == 0)
			return function;
	return NULL;
}

/*
 * Adds a kernel unless another thread was faster. The slower thread's object, which the service
 * also knows, stays in the list behind the other one, and is freed with the module.
 */
static struct client_function *add_function(struct client_module *module, struct client_function *function)
{
	struct client_function *first;

	pthread_mutex_lock(&module->lock);
	first = known_function(module, function->name, function->name_hash);
	if (first) {
		function->next = first->next;
		first->next = function;
	} else {
		function->next = module->functions;
		module->functions = function;
		first = function;
	}
	pthread_mutex_unlock(&module->lock);
	return first;
}

CUresult module_function(
	struct client_module *module, const char *name, struct client_function **ret_function)
{
	SESSION_SCOPE(module->session);
	struct client_function *function;
	CUresult result;
	uint32_t hash;

	if (!ret_function || !name)
		return CUDA_ERROR_INVALID_VALUE;
	if (*name == '\0')
		return CUDA_ERROR_NOT_FOUND;
	result = wake(module);
	if (result != CUDA_SUCCESS)
		return result;
	hash = hash_name(name);
	pthread_mutex_lock(&module->lock);
	function = known_function(module, name, hash);
	pthread_mutex_unlock(&module->lock);
	if (!function) {
		result = function_new(module, module->id, name, &function);
		if (result != CUDA_SUCCESS)
			return result;
		function->name_hash = hash;
		function = add_function(module, function);
	}
	*ret_function = function;
	return CUDA_SUCCESS;
}

static struct client_global *known_global(const struct client_module *module, const char *name)
{
	struct client_global *global;

	for (global = module->globals; global; global = global->next)
		if (strcmp(global->name, name) == 0)
			return global;
	return NULL;
}

static CUresult ask_global(
	const struct client_module *module, const char *name, CUdeviceptr *ret_address, size_t *ret_bytes)
{
	struct wire_message request = {.type = WIRE_FIND_GLOBAL};
	struct control_answer *answer = control_answer_new();
	const struct wire_u64s *values;
	CUresult result;

	request.symbol.module = module->id;
	request.symbol.name = name;
	result = ask(&request, answer);
	if (result == CUDA_SUCCESS) {
		values = &answer->message.reply.values;
		if (values->count < 2) {
			result = CUDA_ERROR_UNKNOWN;
		} else {
			*ret_address = values->at[0];
			*ret_bytes = values->at[1];
		}
	}
	control_answer_free(answer);
	return result;
}

/* Whether an address is that of a managed variable, whose range is in the map already. */
static bool is_managed(const struct client_module *module, CUdeviceptr address)
{
	return module->managed && managed_holds(address, 1) && address >= module->managed;
}

/* Adds a global, and its addresses to the map for copies and pointer queries. Without memory the
 * next lookup asks again. */
static void add_global(struct client_module *module, const char *name, CUdeviceptr address, size_t bytes)
{
	size_t length = strlen(name) + 1;
	struct client_global *global = malloc(sizeof(*global) + length);

	if (bytes > 0 && !is_managed(module, address))
		ranges_add(address, bytes, RANGE_GLOBAL, module);
	if (!global)
		return;
	global->address = address;
	global->bytes = bytes;
	memcpy(global->name, name, length);
	pthread_mutex_lock(&module->lock);
	global->next = module->globals;
	module->globals = global;
	pthread_mutex_unlock(&module->lock);
}

CUresult module_global(
	struct client_module *module, const char *name, CUdeviceptr *ret_address, size_t *ret_bytes)
{
	SESSION_SCOPE(module->session);
	const struct client_global *global;
	CUdeviceptr address;
	CUresult result;
	size_t bytes;

	if (!name || (!ret_address && !ret_bytes))
		return CUDA_ERROR_INVALID_VALUE;
	result = wake(module);
	if (result != CUDA_SUCCESS)
		return result;
	pthread_mutex_lock(&module->lock);
	global = known_global(module, name);
	if (global) {
		address = global->address;
		bytes = global->bytes;
	}
	pthread_mutex_unlock(&module->lock);
	if (!global) {
		result = ask_global(module, name, &address, &bytes);
		if (result != CUDA_SUCCESS)
			return result;
		add_global(module, name, address, bytes);
	}
	if (ret_address)
		*ret_address = address;
	if (ret_bytes)
		*ret_bytes = bytes;
	return CUDA_SUCCESS;
}

CUresult module_managed(
	struct client_module *module, const char *name, CUdeviceptr *ret_address, size_t *ret_bytes)
{
	CUdeviceptr address;
	CUresult result = module_global(module, name, &address, ret_bytes);

	if (result == CUDA_SUCCESS && !is_managed(module, address))
		return CUDA_ERROR_NOT_FOUND;
	if (result == CUDA_SUCCESS && ret_address)
		*ret_address = address;
	return result;
}

/* The next names of the list, and their total number. */
static CUresult ask_names(const struct client_module *module, unsigned int from,
	struct control_answer *answer, unsigned int *ret_count)
{
	struct wire_message request = {.type = WIRE_LIST_FUNCTIONS};
	const struct wire_reply *reply;
	CUresult result;

	request.symbol.module = module->id;
	request.symbol.from = from;
	result = ask(&request, answer);
	if (result != CUDA_SUCCESS)
		return result;
	reply = &answer->message.reply;
	if (reply->values.count < 1 || reply->values.at[0] > UINT32_MAX ||
		(reply->names.count == 0 && reply->values.at[0] > from))
		return CUDA_ERROR_UNKNOWN;
	*ret_count = (unsigned int)reply->values.at[0];
	return CUDA_SUCCESS;
}

CUresult module_functions(struct client_module *module, enum module_order order,
	struct client_function **ret_functions, unsigned int room, unsigned int *ret_count)
{
	SESSION_SCOPE(module->session);
	struct control_answer *answer = control_answer_new();
	CUresult result = wake(module);
	unsigned int count = 0, at = 0, place;

	if (!ret_functions)
		room = 0;
	do {
		const struct wire_names *names;

		if (result == CUDA_SUCCESS)
			result = ask_names(module, at, answer, &count);
		if (result != CUDA_SUCCESS)
			break;
		names = &answer->message.reply.names;
		for (unsigned int i = 0; i < names->count && at < count && result == CUDA_SUCCESS; ++i) {
			place = order == MODULE_ORDER_LIBRARY ? at : count - 1 - at;
			if (place < room)
				result = module_function(module, names->at[i], &ret_functions[place]);
			at++;
		}
	} while (at < count && (order == MODULE_ORDER_MODULE ? room : at < room));
	control_answer_free(answer);
	if (result == CUDA_SUCCESS)
		*ret_count = count;
	return result;
}
