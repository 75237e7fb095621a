// The parameters of a graph node: checked copies of the program's. Plain data and owned memory, no
// handles of graphs but a child. Any thread; the owner of the node guards the parameters.

#ifndef FRMPS_CLIENT_GRAPH_PARAMS_H
#define FRMPS_CLIENT_GRAPH_PARAMS_H

#include <stdbool.h>
#include <stdint.h>

#include "client/stage/copy.h"
#include "protocol/command.h"
#include "protocol/cuda_abi.h"

struct client_function;
struct client_graph;
struct graph_memory;
struct launch;

struct graph_kernel {
	CUcontext context; /* that the node was added in, as the program sees it */
	const struct client_function *function;
	uint64_t function_serial;
	bool cooperative;
	struct frmps_launch *body; /* as on the ring: attributes and arguments follow */
	void **pointers;	   /* to the arguments, for the program to read */
	uint32_t pointer_count;
};

struct graph_copy {
	CUDA_MEMCPY3D given;
	struct box box;
	unsigned int how; /* COPY_* */
};

struct graph_batch {
	CUstreamBatchMemOpParams *operations;
	unsigned int count;
};

/* A conditional node. The handle is the address of a word of device memory, the same in every
 * executor: kernels write there (server/backend/cuda/condition.c). */
struct graph_branch {
	CUgraphConditionalHandle handle;
	CUgraphConditionalNodeType kind;
	struct client_graph **bodies; /* freed by graph.c; the array is the node's */
	uint32_t count;
	struct frmps_condition *form; /* for the service; form.c fills in the numbers behind it */
};

struct graph_params {
	CUgraphNodeType type;
	union {
		struct graph_kernel kernel;
		struct graph_copy copy;
		CUDA_MEMSET_NODE_PARAMS set;
		CUDA_HOST_NODE_PARAMS host;
		CUevent event;
		struct client_graph *child;  /* freed by graph.c */
		struct graph_memory *memory; /* MEM_ALLOC: a reference (memory.h) */
		CUdeviceptr address;	     /* MEM_FREE */
		struct graph_batch batch;
		struct graph_branch branch;
	};
};

/*
 * Each function makes parameters from the program's; params_deinit() frees them. After a failure
 * there is nothing to free. CUDA_ERROR_INVALID_VALUE for parameters that the driver refuses,
 * CUDA_ERROR_INVALID_HANDLE for an invalid kernel or event, CUDA_ERROR_OUT_OF_MEMORY.
 */
CUresult params_launch(const struct launch *launch, struct graph_params *ret_params);
/** params_launch() leaves the context open. @keep: attributes and context are taken from there;
 * NULL: no attributes, and the current context */
CUresult params_kernel(const CUDA_KERNEL_NODE_PARAMS *given, const struct graph_params *keep,
	struct graph_params *ret_params);
CUresult params_copy(const CUDA_MEMCPY3D *given, struct graph_params *ret_params);
CUresult params_box(const struct box *box, unsigned int how, struct graph_params *ret_params);
CUresult params_set(const CUDA_MEMSET_NODE_PARAMS *given, struct graph_params *ret_params);
CUresult params_host(const CUDA_HOST_NODE_PARAMS *given, struct graph_params *ret_params);
CUresult params_event(CUgraphNodeType type, CUevent event, struct graph_params *ret_params);
/** The bodies are graph.c's to make. */
CUresult params_branch(const CUDA_CONDITIONAL_NODE_PARAMS *given, struct graph_params *ret_params);
CUresult params_batch(const CUDA_BATCH_MEM_OP_NODE_PARAMS *given, struct graph_params *ret_params);

/** A deep copy, without a child graph. */
CUresult params_clone(const struct graph_params *params, struct graph_params *ret_clone);
/** Frees the memory of parameters, but not a child graph. */
void params_deinit(struct graph_params *params);

/**
 * True if two parameters of the same type are equal. Memory operations never count as equal: a form
 * points to their parameters.
 */
bool params_are_same(const struct graph_params *a, const struct graph_params *b);
/** True if two kernels have the same attributes. */
bool params_attributes_are_same(const struct graph_kernel *a, const struct graph_kernel *b);

/**
 * Notes the context that a kernel's node is added in: of a green context, the kernel runs on its
 * multiprocessors. CUDA_ERROR_INVALID_VALUE if the kernel has too many attributes;
 * CUDA_ERROR_OUT_OF_MEMORY.
 */
CUresult params_place(struct graph_params *params, CUcontext context);

/** Bytes of a kernel's body with attributes and arguments. */
uint32_t params_kernel_bytes(const struct graph_kernel *kernel);
/** In the program's form; pointers into the parameters. */
void params_kernel_get(const struct graph_kernel *kernel, CUDA_KERNEL_NODE_PARAMS *ret_given);
/** Checks a kernel with its attributes as its launch would be. The graph lock is not held. */
CUresult params_check_kernel(const struct graph_params *params);
/** Attributes of a kernel, unchecked. CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_SUPPORTED. */
CUresult params_attribute_set(
	struct graph_params *params, CUlaunchAttributeID id, const CUlaunchAttributeValue *value);
/** As params_attribute_set(), unless the attribute exists. */
CUresult params_attribute_default(
	struct graph_params *params, CUlaunchAttributeID id, const CUlaunchAttributeValue *value);
/** Writes the bytes that the value has. CUDA_ERROR_INVALID_VALUE. */
CUresult params_attribute_get(
	const struct graph_params *params, CUlaunchAttributeID id, CUlaunchAttributeValue *ret_value);
/** Both stay in their contexts. */
CUresult params_attributes_copy(struct graph_params *to, const struct graph_params *from);
/** Removes an attribute. Return: true if there was one with a value other than zero. */
bool params_attribute_take(struct graph_params *params, CUlaunchAttributeID id);

#endif
