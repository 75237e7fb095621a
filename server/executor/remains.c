// A module's variables are in the context, and kernels may store results there, or in the device's
// heap, whose addresses no program ever asks for. This residual state is lost with the executor,
// and its session is notified (takeover.c). The backend has read from the image if there is any
// (server/backend/statics.h).
//
// Before a kernel that may write there is issued, the executor sets a bit in the session's own
// memory, which outlives the executor (shm_server_header.ran). As long as the bit is not set, the
// next executor's module is as good as this one: just loaded. The client may reuse the number of an
// unloaded module.

#include "server/executor/remains.h"

#include "server/backend/statics.h"
#include "server/executor/tenant.h"
#include "server/log.h"

/* The place of a module's bit, in all words of this kind. */
static uint64_t bit_of(uint32_t module, uint32_t *ret_word)
{
	*ret_word = module % SHM_MODULES / 64;
	return UINT64_C(1) << module % 64;
}

/* ---- modules ---- */

void remains_add_module(struct tenant *tenant, struct module *module)
{
	const struct statics *statics = tenant_ops(tenant)->module_statics(module->backend);
	uint32_t word;
	uint64_t bit = bit_of(module->id, &word);

	module->leaves = !statics_are_none(statics);
	if (!module->leaves)
		return;
	if (statics->more)
		log_info("what kernels of module %u of session %llu (%s, pid %d) leave behind is not known: "
			 "%s",
			module->id, (unsigned long long)tenant->id, tenant->program, tenant->pid,
			statics->more);
	word_add(&tenant->leaves[word], bit);
}

void remains_forget(struct tenant *tenant, const struct module *module)
{
	uint32_t word;
	uint64_t bit = bit_of(module->id, &word);

	word_remove(&tenant->leaves[word], bit);
}

void remains_forget_launches(struct tenant *tenant, const struct module *module)
{
	uint32_t word;
	uint64_t bit = bit_of(module->id, &word);

	if (module->leaves && word_relaxed(&tenant->generation) && !executor_is_lost(tenant->executor))
		word_remove(&tenant->view.server->ran[word], bit);
}

/* ---- running ---- */

bool remains_are_left_by(struct tenant *tenant, const struct module *module, const char *kernel)
{
	return statics_reached_by(tenant_ops(tenant)->module_statics(module->backend), kernel);
}

void remains_note_launch(struct tenant *tenant, const struct function *function)
{
	struct module *module = function->module;
	uint32_t word;
	uint64_t bit;

	if (!function->leaves || module->has_run)
		return;
	bit = bit_of(module->id, &word);
	/* Pairs with the acquire in remains_are_lost(). */
	word_add(&tenant->view.server->ran[word], bit);
	module->has_run = true;
}

bool remains_are_lost(const struct tenant *tenant)
{
	for (uint32_t i = 0; i < SHM_MODULES / 64; i++)
		if (word_acquire(&tenant->view.server->ran[i]) & word_relaxed(&tenant->leaves[i]))
			return true;
	return false;
}
