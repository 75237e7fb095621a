// Loading a module.
//
//   module thread    a private copy of the image; code for the device is loaded and the client
//                    answered
//   compile thread   a text is compiled (compiler.h)
//   module thread    its code is loaded, and the client answered
//
// What was compiled goes with the answer, in a file: the daemon keeps it in the text's place, so
// that no later executor compiles it again, and every one has the same code. A standby is told of a
// module by requests that follow one another without waiting, so it does everything at once and in
// their order: also compile, if it ever has to.

#include "server/executor/load.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "server/executor/compiler.h"
#include "server/executor/module.h"
#include "server/executor/tenant.h"
#include "server/executor/variable.h"
#include "server/log.h"

#define LOG_BYTES 16384u

struct load {
	uint8_t *image; /* the client's */
	void *code;	/* what was compiled of it; NULL: nothing was */
	size_t code_bytes;
	CUresult compiled; /* result of that */
	struct backend_variables variables;
	char log[LOG_BYTES];
};

/* Any thread. */
static void drop(struct job *job)
{
	struct load *load = job->load;

	free(load->image);
	free(load->code);
	free(load->variables.first);
	free(load);
}

/* The compiled code as a sealed file; -1 without memory: then others compile it again. */
static int make_file(const struct load *load)
{
	int fd = memfd_create("frmps-code", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0)
		return -1;
	if (module_write_file(fd, load->code, load->code_bytes) ||
		fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) < 0) {
		close(fd);
		return -1;
	}
	return fd;
}

/* Values: whether its kernels leave nothing behind; what they do with the ring for text
 * (shm/text.h); bytes of what was compiled, if that goes along; whether its variables are in the
 * client's block. */
static void answer(struct job *job, const struct module *module, uint64_t uses)
{
	struct load *load = job->load;
	int fd = load->code ? make_file(load) : -1;
	const uint64_t values[] = {
		!module->leaves, uses, fd < 0 ? 0 : load->code_bytes, load->variables.bytes > 0};
	struct wire_reply reply = {.values = {values, 4}, .text = load->log};

	job_reply_file(job, &reply, fd);
	if (fd >= 0)
		close(fd);
}

/* @ret_uses: what its kernels do with the ring for text */
static CUresult put_in(struct job *job, struct module *module, uint64_t *ret_uses)
{
	const struct wire_load_module *wish = &job->message.load_module;
	struct load *load = job->load;
	struct backend_text text = {.ring = job->tenant->text};
	struct backend_variables *variables =
		wish->variables == WIRE_VARIABLES_OF_DRIVER ? NULL : &load->variables;
	CUresult result;

	/* The options are for the compiler: it has had them. */
	if (load->code)
		result = job->executor->ops->module_load(load->code, load->code_bytes, NULL,
			text.ring ? &text : NULL, variables, NULL, 0, &module->backend);
	else
		result = job->executor->ops->module_load(load->image, wish->bytes, &wish->options,
			text.ring ? &text : NULL, variables, load->log, LOG_BYTES, &module->backend);
	*ret_uses = text.uses;
	return executor_code(job->executor, result);
}

/* Where the executors before had them: kernels would find the first values anywhere else. The plan
 * is the same in all of them, but for one that had no memory for it. */
static bool are_where_they_were(const struct job *job)
{
	const struct wire_load_module *wish = &job->message.load_module;

	return !wish->is_filled || wish->variables == WIRE_VARIABLES_OF_DRIVER || job->load->variables.bytes;
}

/* The block's first values. A later executor finds those there that it has now. */
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
	const uint64_t *bytes = &job->load->variables.bytes;

	if (module && module->backend)
		module_worker_bury(job->executor, module);
	else
		free(module);
	job_reply(job, result, bytes, result == CUDA_ERROR_NOT_READY ? 1 : 0, job->load->log);
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

/* Module thread again. */
static void go_on(struct job *job)
{
	if (job->tenant->closing)
		job_reply(job, CUDA_ERROR_INVALID_CONTEXT, NULL, 0, "the session ends");
	else if (job->load->compiled)
		job_reply(job, executor_code(job->executor, job->load->compiled), NULL, 0, job->load->log);
	else
		load(job);
}

/* Compile thread. Nobody waits for what a session that ends wanted. */
static void compile(struct job *job)
{
	const struct wire_load_module *wish = &job->message.load_module;
	struct load *load = job->load;

	if (!job->tenant->closing)
		load->compiled = job->executor->ops->module_compile(load->image, wish->bytes, &wish->options,
			load->log, LOG_BYTES, &load->code, &load->code_bytes);
	compiler_release(job);
	job->run = go_on;
	module_worker_queue(job);
}

static bool is_standby(const struct tenant *tenant)
{
	return !word_relaxed(&tenant->generation);
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
		result = module_read_file(
			job->packet.fd_count ? job->packet.fds[0] : -1, wish->bytes, &job->load->image);
	if (result) {
		job_reply(job, result, NULL, 0, NULL);
		return;
	}
	job->run = compile;
	if (is_standby(job->tenant) || !job->executor->ops->module_is_source(job->load->image, wish->bytes) ||
		!compiler_queue(job))
		load(job);
}
