// Libraries in several live contexts. Each context has an instance of its own, with its own
// variables, which is made at the library's first use there and ends with the context. In the first
// context of its session that uses it, its home, the library is its own instance; elsewhere the
// instance is a module of the context, loaded again from the library's image.
//
// None of this matters as long as a program never has two contexts at a time. When the second
// context begins, the libraries used so far get the first context as their home.
//
// Any thread. A thread that makes an instance blocks other threads that use a library outside its
// home.

#ifndef FRMPS_CLIENT_STATE_INSTANCE_H
#define FRMPS_CLIENT_STATE_INSTANCE_H

#include "client/state/function.h"
#include "client/state/module.h"
#include "protocol/cuda_abi.h"
#include "shm/order.h"

/* Set if the process ever had two contexts at a time. */
extern word32 instance_matters;

/** A context begins beside a live context. @session, @home: of the latter, its id */
void instance_divide(const struct session *session, uint64_t home);

/** The library's instance in a context. */
CUresult instance_of(struct client_module *library, CUcontext context, struct client_module **ret_instance);

/** The kernel in a context; a module's kernel is the same in each. */
CUresult instance_function(
	struct client_function *function, CUcontext context, struct client_function **ret_function);

/** A module ends: the instances of a library end with it. */
void instance_forget(struct client_module *module);

/** The kernel of a handle in the current context. Errors as of function_use(). */
static inline CUresult function_enter(const void *handle, struct client_function **ret_function)
{
	CUresult result = function_use(handle, ret_function);

	if (__builtin_expect(word_relaxed(&instance_matters), 0) && result == CUDA_SUCCESS)
		result = instance_function(*ret_function, NULL, ret_function);
	return result;
}

#endif
