// Loading a module: a private copy of the image becomes a module of the backend, and the module's
// variables get their first values. Images that must be compiled first are refused: no executor has
// a compiler (server/compiler/).

#include "server/executor/load.h"

#include <stdio.h>
#include <stdlib.h>

#include "server/executor/module.h"
#include "server/executor/tenant.h"
#include "server/executor/variable.h"
#include "server/file.h"

#define LOG_BYTES 16384u

struct load {
	uint8_t *image; /* the client's */
	struct backend_variables variables;
	uint64_t code; /* address of the code, as in the message */
	uint64_t constants, unpacked;
	enum load_reason reason;
	char log[LOG_BYTES];
};

/* Any thread. */
static void drop(struct job *job)
{
	struct load *load = job->load;

	free(load->image);
	free(load->variables.first);
	free(load);
}

/* Values: 1 if the module's kernels leave no residual state; the kernels' uses of the ring for text
 * (shm/text.h); the address of the code; 1 if the variables are in the client's block; the reason
 * why the driver has loaded the module; the address of its constants in a bank; bytes that were
 * compressed. */
static void answer(struct job *job, const struct module *module, uint64_t uses)
{
	struct load *load = job->load;
	const uint64_t values[] = {!module->leaves, uses, load->code, load->variables.bytes > 0, load->reason,
		load->constants, load->unpacked};

	job_reply(job, CUDA_SUCCESS, values, 7, load->log);
}

/* @ret_uses: the kernels' uses of the ring for text */
static CUresult put_in(struct job *job, struct module *module, uint64_t *ret_uses)
{
	const struct wire_load_module *wish = &job->message.load_module;
	struct load *load = job->load;
	struct backend_text text = {.ring = job->tenant->text};
	struct backend_load asked = {.image = load->image,
		.bytes = wish->bytes,
		.options = &wish->options,
		.text = text.ring ? &text : NULL,
		.variables = wish->variables == WIRE_VARIABLES_OF_DRIVER ? NULL : &load->variables,
		.window = job->tenant->window_base,
		.code = wish->code,
		.room = wish->room,
		.log = load->log,
		.log_bytes = LOG_BYTES};
	CUresult result = job->executor->ops->module_load(&asked, &module->backend);

	*ret_uses = text.uses;
	load->code = asked.code;
	load->constants = asked.constants;
	load->unpacked = asked.unpacked;
	load->reason = asked.reason;
	return executor_code(job->executor, result);
}

/* True if the variables are where previous executors had them: elsewhere kernels would find the
 * first values. The plan is the same in all executors, but for an executor without memory for the
 * plan. */
static bool are_where_they_were(const struct job *job)
{
	const struct wire_load_module *wish = &job->message.load_module;

	return !wish->is_filled || wish->variables == WIRE_VARIABLES_OF_DRIVER || job->load->variables.bytes;
}

/* Writes the block's first values. A later executor finds the block's present values there. */
static CUresult fill_variables(struct job *job, struct module *module)
{
	const struct wire_load_module *wish = &job->message.load_module;
	const struct backend_variables *variables = &job->load->variables;
	CUresult result;

	if (!are_where_they_were(job)) {
		snprintf(job->load->log, LOG_BYTES, "its variables would not be where they were");
		return CUDA_ERROR_NOT_SUPPORTED;
	}
	if (!variables->bytes)
		return CUDA_SUCCESS;
	module->variables = (struct range){wish->variables, wish->variables + variables->bytes};
	if (wish->is_filled)
		return CUDA_SUCCESS;
	result = variable_fill(job->tenant, &module->variables, variables->first);
	if (result == CUDA_ERROR_SYSTEM_NOT_READY)
		snprintf(job->load->log, LOG_BYTES,
			"the GPU did not take the first values of its variables in time. It can be tried "
			"again");
	return result;
}

static void fail(struct job *job, struct module *module, CUresult result)
{
	const struct backend_variables *variables = &job->load->variables;
	const uint64_t wanted[] = {variables->bytes, variables->is_managed};

	if (module && module->backend)
		module_worker_reclaim(job->executor, module);
	else
		free(module);
	job_reply(job, result, wanted, result == CUDA_ERROR_NOT_READY ? 2 : 0, job->load->log);
}

/* Module thread. */
static void load(struct job *job)
{
	struct module **slot = module_slot(job->tenant, job->message.load_module.module);
	struct module *module = slot && !*slot ? calloc(1, sizeof(*module)) : NULL;
	uint64_t uses = 0;
	CUresult result = module ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;

	job->load->variables.at = job->message.load_module.variables;
	if (!result)
		result = put_in(job, module, &uses);
	if (!result)
		result = fill_variables(job, module);
	if (result) {
		fail(job, module, result);
		return;
	}
	module->id = job->message.load_module.module;
	contain_note_module(job->executor, module->backend, job->tenant->id);
	remains_add_module(job->tenant, module);
	*slot = module;
	answer(job, module, uses);
}

void load_module(struct job *job)
{
	const struct wire_load_module *wish = &job->message.load_module;
	struct module **slot = module_slot(job->tenant, wish->module);
	CUresult result = CUDA_SUCCESS;

	job->load = calloc(1, sizeof(*job->load));
	job->drop = job->load ? drop : NULL;
	if (!slot || *slot)
		result = CUDA_ERROR_INVALID_VALUE;
	else if (!job->load)
		result = CUDA_ERROR_OUT_OF_MEMORY;
	if (!result)
		result = file_read(
			job->packet.fd_count ? job->packet.fds[0] : -1, wish->bytes, &job->load->image);
	if (result)
		job_reply(job, result, NULL, 0, NULL);
	else
		load(job);
}
