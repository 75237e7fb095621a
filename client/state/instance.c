// See instance.h. Runs on the program's threads.

#include "client/state/instance.h"

#include <pthread.h>

#include "client/state/context.h"
#include "client/state/session.h"

word32 instance_matters;

/* Guards homes and the lists of instances; held while the service loads an instance. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void instance_divide(const struct session *session, uint64_t home)
{
	module_settle_libraries(session, home);
	word_release(&instance_matters, 1);
}

/* Under the lock. */
static struct client_module *find(const struct client_module *library, CUcontext context)
{
	struct client_module *instance = library->instances;

	while (instance && instance->context != context)
		instance = instance->next_instance;
	return instance;
}

/* Under the lock. */
static CUresult make(struct client_module *library, CUcontext context, struct client_module **ret_instance)
{
	struct client_module *instance;
	CUresult r = module_load_instance(library, context, &instance);

	if (r != CUDA_SUCCESS)
		return r;
	instance->next_instance = library->instances;
	library->instances = instance;
	*ret_instance = instance;
	return CUDA_SUCCESS;
}

/* Under the lock. */
static CUresult find_or_make(
	struct client_module *library, CUcontext context, uint64_t id, struct client_module **ret_instance)
{
	struct client_module *instance = find(library, context);

	/* Elsewhere than where it was loaded a library never is its own instance. */
	if (!instance && !word_relaxed(&library->home) &&
		library->session == &sessions[context_device(context)])
		word_set(&library->home, id);
	if (!instance && word_relaxed(&library->home) == id)
		instance = library;
	*ret_instance = instance;
	return instance ? CUDA_SUCCESS : make(library, context, ret_instance);
}

CUresult instance_of(struct client_module *library, CUcontext context, struct client_module **ret_instance)
{
	uint64_t id = context_id(context);
	CUresult r;

	if (!word_relaxed(&instance_matters) || word_acquire(&library->home) == id) {
		*ret_instance = library;
		return CUDA_SUCCESS;
	}
	pthread_mutex_lock(&lock);
	r = find_or_make(library, context, id, ret_instance);
	pthread_mutex_unlock(&lock);
	return r;
}

CUresult instance_function(
	struct client_function *function, CUcontext context, struct client_function **ret_function)
{
	struct client_module *library = function->module, *instance;
	CUresult r = CUDA_SUCCESS;

	*ret_function = function;
	if (!library->library)
		return CUDA_SUCCESS;
	r = instance_of(library, context ? context : context_current(), &instance);
	if (r != CUDA_SUCCESS || instance == library)
		return r;
	r = module_function(instance, function->name, ret_function);
	return r == CUDA_SUCCESS ? function_follow(*ret_function, function) : r;
}

/* An instance of a library, NULL if there is none. */
static struct client_module *any_instance(struct client_module *library)
{
	struct client_module *instance;

	pthread_mutex_lock(&lock);
	instance = library->instances;
	pthread_mutex_unlock(&lock);
	return instance;
}

static void unlink_instance(struct client_module *instance)
{
	struct client_module **at = &instance->base->instances;

	pthread_mutex_lock(&lock);
	while (*at && *at != instance)
		at = &(*at)->next_instance;
	if (*at)
		*at = instance->next_instance;
	pthread_mutex_unlock(&lock);
}

void instance_forget(struct client_module *module)
{
	struct client_module *instance;

	if (module->base)
		unlink_instance(module);
	/* module_unload() removes the instance from the list, unless another thread does. */
	while ((instance = any_instance(module)))
		if (module_unload(instance) == CUDA_ERROR_INVALID_HANDLE)
			break;
}
