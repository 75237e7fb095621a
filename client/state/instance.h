// Libraries in several contexts that live at the same time. Each context has an instance of its
// own, with variables of its own, made when the library is first used there and gone with the
// context. In the first context that uses it, its home, the library is its own instance; elsewhere
// that is a module of the context, loaded from the library's image once more.
//
// As long as a program never has two contexts at a time none of this is looked at. When the second
// one begins the libraries that were used until then are at home in the first.
//
// Any thread. A thread that makes an instance holds up others that use a library outside its home.

#ifndef FRMPS_CLIENT_STATE_INSTANCE_H
#define FRMPS_CLIENT_STATE_INSTANCE_H

#include "client/state/function.h"
#include "client/state/module.h"
#include "protocol/cuda_abi.h"
#include "shm/order.h"

/* Whether the process ever had two contexts at a time. */
extern word32 instance_matters;

/** A context begins beside one that lives. @home: that one's id */
void instance_divide(uint64_t home);

/** The library's instance in a context. */
CUresult instance_of(struct client_module *library, CUcontext context, struct client_module **ret_instance);

/** The kernel in a context; that of a module is the same in each. */
CUresult instance_function(
	struct client_function *function, CUcontext context, struct client_function **ret_function);

/** A module ends: the instances of a library end with it. */
void instance_forget(struct client_module *module);

/** The kernel behind a handle as it is in the current context. Errors as of function_use(). */
static inline CUresult function_enter(const void *handle, struct client_function **ret_function)
{
	CUresult result = function_use(handle, ret_function);

	if (__builtin_expect(word_relaxed(&instance_matters), 0) && result == CUDA_SUCCESS)
		result = instance_function(*ret_function, NULL, ret_function);
	return result;
}

#endif
