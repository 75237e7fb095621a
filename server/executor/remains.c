// A module's variables are in the context, and kernels may keep results there of which no program ever asks
// the address. The backend has read from the image which there are (server/backend/statics.h); every executor
// that knows the session finds their addresses:
//
//   load           what cannot be taken along is noted, with the reason; else that nothing is found yet
//   first kernel   the module is on the device now, so its variables are: each is looked up by its name, in
//                  the active executor and in the standby at the same point of the same sequence of
//                  requests. So they are at the same addresses, unless the two have had different modules
//                  before; that is checked in the end (variable.c)
//   unload         all of it is forgotten; the client may give its number to another module
//
// Before a kernel that may write there is given to a device, a bit in the session's own memory says so, which
// outlives the executor (shm_server_header.ran). As long as it is not set, the next executor's module is as
// good as this one: just loaded. With it, the values go along where the executor halts gently; where it ends
// otherwise they are lost, and the program is told (takeover.c).

#include "server/executor/remains.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "server/backend/statics.h"
#include "server/executor/tenant.h"
#include "server/log.h"

void remains_init(struct remains *remains)
{
	*remains = (struct remains){.count = 0};
	pthread_mutex_init(&remains->lock, NULL);
}

void remains_deinit(struct remains *remains)
{
	for (uint32_t i = 0; i < remains->count; i++)
		free(remains->at[i].what);
	free(remains->at);
	pthread_mutex_destroy(&remains->lock);
}

/* Where the bit of a module is: in all words of this kind. */
static uint64_t bit_of(uint32_t module, uint32_t *ret_word)
{
	*ret_word = module % SHM_MODULES / 64;
	return UINT64_C(1) << module % 64;
}

/* Locked. */
static void add(struct remains *remains, uint32_t module, struct range range, const char *what)
{
	struct remain *grown = NULL;
	uint32_t word;
	uint64_t bit = bit_of(module, &word);
	char *copy = remains->count < REMAINS_MAX ? strndup(what, REMAINS_TEXT - 1) : NULL;

	if (copy)
		grown = realloc(remains->at, (remains->count + 1) * sizeof(*grown));
	if (!grown) {
		free(copy);
		remains->overflow[word] |= bit;
		return;
	}
	remains->at = grown;
	grown[remains->count++] = (struct remain){module, range, copy};
}

/* Locked. */
static void take_out(struct remains *remains, uint32_t module)
{
	uint32_t left = 0, word;
	uint64_t bit = bit_of(module, &word);

	for (uint32_t i = 0; i < remains->count; i++) {
		if (remains->at[i].module == module)
			free(remains->at[i].what);
		else
			remains->at[left++] = remains->at[i];
	}
	remains->count = left;
	remains->overflow[word] &= ~bit;
}

/* ---- modules ---- */

void remains_add_module(struct tenant *tenant, struct module *module)
{
	const struct statics *statics = tenant_ops(tenant)->module_statics(module->backend);
	struct remains *remains = &tenant->remains;

	module->leaves = !statics_are_none(statics);
	if (!module->leaves)
		return;
	if (statics->more)
		log_info(
			"what kernels of module %u of session %llu (%s, pid %d) leave behind cannot be taken "
			"along: %s",
			module->id, (unsigned long long)tenant->id, tenant->program, tenant->pid,
			statics->more);
	pthread_mutex_lock(&remains->lock);
	add(remains, module->id, (struct range){0, 0},
		statics->more ? statics->more : "its variables are not found");
	pthread_mutex_unlock(&remains->lock);
}

/* Return: an empty range if it is not what was expected. */
static struct range find(
	struct tenant *tenant, const struct module *module, const struct statics_variable *variable)
{
	struct executor *executor = tenant->executor;
	struct backend_global found = {.bytes = 0};
	CUresult code = executor_code(executor,
		executor->ops->global_find(module->backend, variable->name, executor->gate.closed, &found));

	if (!code && found.address && found.bytes == variable->bytes &&
		found.bytes <= UINT64_MAX - found.address)
		return (struct range){found.address, found.address + found.bytes};
	log_info("variable %s of module %u of session %llu (%s, pid %d) is not found: code %d, %llu bytes",
		variable->name, module->id, (unsigned long long)tenant->id, tenant->program, tenant->pid,
		(int)code, (unsigned long long)found.bytes);
	return (struct range){0, 0};
}

void remains_find(struct tenant *tenant, struct module *module)
{
	const struct statics *statics = tenant_ops(tenant)->module_statics(module->backend);
	struct remains *remains = &tenant->remains;
	struct range *ranges;

	if (module->is_found || !module->leaves || statics->more)
		return;
	ranges = calloc(statics->count, sizeof(*ranges));
	if (!ranges)
		return;
	for (uint32_t i = 0; i < statics->count; i++)
		ranges[i] = find(tenant, module, &statics->variables[i]);
	pthread_mutex_lock(&remains->lock);
	take_out(remains, module->id);
	for (uint32_t i = 0; i < statics->count; i++)
		add(remains, module->id, ranges[i], statics->variables[i].name);
	pthread_mutex_unlock(&remains->lock);
	free(ranges);
	module->is_found = true;
}

static word64 *ran_word(const struct tenant *tenant, uint32_t module, uint64_t *ret_bit)
{
	uint32_t word;

	*ret_bit = bit_of(module, &word);
	return &tenant->view.server->ran[word];
}

void remains_forget(struct tenant *tenant, const struct module *module)
{
	struct remains *remains = &tenant->remains;

	if (!module->leaves)
		return;
	pthread_mutex_lock(&remains->lock);
	take_out(remains, module->id);
	pthread_mutex_unlock(&remains->lock);
}

void remains_forget_launches(struct tenant *tenant, const struct module *module)
{
	uint64_t bit;
	word64 *word;

	if (!module->leaves || !word_relaxed(&tenant->generation) || executor_is_lost(tenant->executor))
		return;
	word = ran_word(tenant, module->id, &bit);
	word_remove(word, bit);
}

/* ---- running ---- */

bool remains_are_left_by(struct tenant *tenant, const struct module *module, const char *kernel)
{
	return statics_reached_by(tenant_ops(tenant)->module_statics(module->backend), kernel);
}

void remains_note_launch(struct tenant *tenant, const struct function *function)
{
	struct module *module = function->module;
	uint64_t bit;
	word64 *word;

	if (!function->leaves || module->has_run)
		return;
	word = ran_word(tenant, module->id, &bit);
	/* Pairs with the acquire in has_run(). */
	word_add(word, bit);
	module->has_run = true;
}

static bool has_run(const struct tenant *tenant, uint32_t module)
{
	uint64_t bit;
	word64 *word = ran_word(tenant, module, &bit);

	return word_acquire(word) & bit;
}

/* Locked. Whether anything has run of a module of which there is more. */
static bool misses_any(const struct tenant *tenant)
{
	for (uint32_t i = 0; i < SHM_MODULES / 64; i++)
		if (word_acquire(&tenant->view.server->ran[i]) & tenant->remains.overflow[i])
			return true;
	return false;
}

static void take_in(struct remains_list *list, const struct remain *remain)
{
	if (remain->range.start < remain->range.end)
		list->ranges[list->count++] = remain->range;
	else if (!list->lost[0])
		strncpy(list->lost, remain->what, sizeof(list->lost) - 1);
}

int remains_list(struct tenant *tenant, struct remains_list *ret)
{
	struct remains *remains = &tenant->remains;
	struct remains_list list = {.count = 0};

	pthread_mutex_lock(&remains->lock);
	list.ranges = malloc((remains->count + 1) * sizeof(list.ranges[0]));
	for (uint32_t i = 0; list.ranges && i < remains->count; i++)
		if (has_run(tenant, remains->at[i].module))
			take_in(&list, &remains->at[i]);
	if (misses_any(tenant))
		strcpy(list.lost, "there are too many");
	pthread_mutex_unlock(&remains->lock);
	if (!list.ranges)
		return -ENOMEM;
	*ret = list;
	return 0;
}
