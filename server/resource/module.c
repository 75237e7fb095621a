// Modules, and what a program finds in them: functions with their settings, variables.

#include "server/resource/resource.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "protocol/command.h"
#include "server/backend/image.h"
#include "server/resource/check.h"
#include "server/session/holdings.h"
#include "server/session/request.h"

static bool is_id(uint32_t id)
{
	return id > 0 && id < HOLDINGS_IDS;
}

/* True if the first bytes are those of a text, which is for a compiler. */
static bool is_text(int fd)
{
	uint8_t start[4];

	return pread(fd, start, sizeof(start), 0) == (ssize_t)sizeof(start) &&
	       image_check(start, sizeof(start)) == IMAGE_TEXT;
}

static int check_load(struct check *check, const struct wire_message *message)
{
	const struct wire_load_module *load = &message->load_module;
	int r;

	if (!is_id(load->module) || holdings_has_module(check->holdings, load->module))
		return check_broken(check, "id of a module is out of range or in use");
	if (load->kind > 1)
		return check_broken(check, "kind of module is unknown");
	if (load->is_filled || load->code)
		return check_broken(check, "module is said to be loaded already");
	/* Nobody would count the variables as the program's memory. */
	if (load->variables == WIRE_VARIABLES_OF_DRIVER)
		return check_answer(check, CUDA_ERROR_OUT_OF_MEMORY);
	r = check_options(check, &load->options);
	if (!r)
		r = check_image(check, load->bytes);
	/* A file without pages costs the program nothing, but each copy of the file costs its
	 * nominal size. */
	if (!r && load->bytes > CHECK_LINK_BYTES && is_text(check->file))
		return check_answer(check, CUDA_ERROR_INVALID_IMAGE);
	if (!r && check_is_over(check->image_limit, check->holdings->image_bytes, load->bytes))
		return check_over(check, "image_limit", load->bytes);
	return r;
}

static int check_symbol(struct check *check, const struct wire_message *message)
{
	const struct wire_symbol *symbol = &message->symbol;
	enum wire_type type = message->type;
	size_t length = strlen(symbol->name);
	bool named = type == WIRE_FIND_FUNCTION || type == WIRE_FIND_GLOBAL;

	if (!is_id(symbol->module))
		return check_broken(check, "id of a module is out of range");
	if (type == WIRE_FIND_FUNCTION &&
		(!is_id(symbol->function) || holdings_has_function(check->holdings, symbol->function)))
		return check_broken(check, "id of a function is out of range or in use");
	if (named && length > CHECK_NAME_MAX)
		return check_answer(check, CUDA_ERROR_NOT_FOUND);
	if (named && !length)
		return check_answer(check, CUDA_ERROR_INVALID_VALUE);
	if (!holdings_has_module(check->holdings, symbol->module))
		return check_answer(check, CUDA_ERROR_INVALID_HANDLE);
	return 0;
}

static int check_function(struct check *check, uint32_t function)
{
	if (!is_id(function))
		return check_broken(check, "id of a function is out of range");
	if (!holdings_has_function(check->holdings, function))
		return check_answer(check, CUDA_ERROR_INVALID_HANDLE);
	return 0;
}

static int check_setting(struct check *check, const struct wire_message *message)
{
	return check_function(check, message->set_function.function);
}

static int check_occupancy(struct check *check, const struct wire_message *message)
{
	const struct wire_occupancy *occupancy = &message->occupancy;

	if (occupancy->query > 3)
		return check_broken(check, "query of occupancy is unknown");
	if ((occupancy->grid.count && occupancy->grid.count != 3) ||
		(occupancy->block.count && occupancy->block.count != 3))
		return check_broken(check, "dimensions are not three");
	if (occupancy->attributes.count % sizeof(struct frmps_launch_attribute) ||
		occupancy->attributes.count > FRMPS_ATTRIBUTE_MAX * sizeof(struct frmps_launch_attribute))
		return check_broken(check, "launch attributes have a wrong size");
	return check_function(check, occupancy->function);
}

/*
 * Entries
 */

static int fill_module(
	struct holding *entry, const struct wire_message *message, const struct wire_u64s *values)
{
	const struct wire_load_module *load = &message->load_module;

	entry->value = values->count ? values->at[0] == 1 : 0;
	entry->module = load->module;
	entry->kind = load->kind;
	entry->image_bytes = load->bytes;
	entry->memory = values->count > 3 && values->at[3] ? load->variables : WIRE_VARIABLES_OF_DRIVER;
	entry->global[0] = values->count > 2 ? values->at[2] : WIRE_CODE_OF_DRIVER;
	entry->global[1] = values->count > 5 ? values->at[5] : 0;
	entry->unpacked_bytes = values->count > 6 ? values->at[6] : 0;
	if (!load->options.count)
		return 0;
	entry->options = calloc(load->options.count, sizeof(*entry->options));
	if (!entry->options)
		return -ENOMEM;
	memcpy(entry->options, load->options.at, load->options.count * sizeof(*entry->options));
	entry->option_count = load->options.count;
	return 0;
}

static const char *load_flaw(const struct request *request, const struct wire_u64s *values)
{
	return values->count <= 6 || values->at[6] <= request->message.load_module.room
		       ? NULL
		       : "has unpacked more than it may";
}

static void module_again(const struct holding *entry, struct wire_message *message)
{
	message->load_module = (struct wire_load_module){entry->module, entry->kind, entry->image_bytes,
		{entry->options, entry->option_count},
		entry->memory ? entry->memory : WIRE_VARIABLES_OF_DRIVER, true, 0, entry->global[0],
		entry->unpacked_bytes};
}

static bool has_loaded(const struct holdings *holdings, const struct wire_message *message)
{
	return holdings_has_module(holdings, message->load_module.module);
}

static bool has_named(const struct holdings *holdings, const struct wire_message *message)
{
	return holdings_has_module(holdings, message->symbol.module);
}

static void unload(struct holdings *holdings, const struct wire_message *message)
{
	uint32_t module = message->symbol.module;
	struct holding *entry = TAILQ_LAST(&holdings->entries, holding_list), *previous;

	/* The module itself goes last: while the module is there, this can be repeated. */
	for (; entry; entry = previous) {
		previous = TAILQ_PREV(entry, holding_list, link);
		if (entry->module == module && entry->module)
			holdings_remove(holdings, entry);
	}
}

static int fill_symbol(
	struct holding *entry, const struct wire_message *message, const struct wire_u64s *values)
{
	const struct wire_symbol *symbol = &message->symbol;

	entry->module = symbol->module;
	entry->function = symbol->function;
	entry->name = strdup(symbol->name);
	if (entry->type == WIRE_FIND_GLOBAL && values->count >= 2)
		memcpy(entry->global, values->at, sizeof(entry->global));
	return entry->name ? 0 : -ENOMEM;
}

static void symbol_again(const struct holding *entry, struct wire_message *message)
{
	message->symbol = (struct wire_symbol){
		.module = entry->module, .function = entry->function, .name = entry->name};
}

static uint64_t symbol_cost(const struct wire_message *message)
{
	return strlen(message->symbol.name) + 1;
}

static bool has_function(const struct holdings *holdings, const struct wire_message *message)
{
	return holdings_has_function(holdings, message->symbol.function);
}

static struct holding *find_global(const struct holdings *holdings, const struct wire_message *message)
{
	struct holding *entry;

	TAILQ_FOREACH_REVERSE (entry, &holdings->entries, holding_list, link)
		if (entry->type == WIRE_FIND_GLOBAL && entry->module == message->symbol.module &&
			strcmp(entry->name, message->symbol.name) == 0)
			break;
	return entry;
}

static const char *global_flaw(const struct request *request, const struct wire_u64s *values)
{
	(void)request;
	return values->count >= 2 && values->at[0] + values->at[1] >= values->at[0]
		       ? NULL
		       : "answered with a variable that is nowhere";
}

static int fill_setting(
	struct holding *entry, const struct wire_message *message, const struct wire_u64s *values)
{
	(void)values;
	entry->function = message->set_function.function;
	entry->attribute = message->set_function.attribute;
	entry->value = message->set_function.value;
	entry->module = entry->holdings->module_of[entry->function];
	return 0;
}

static void setting_again(const struct holding *entry, struct wire_message *message)
{
	message->set_function = (struct wire_set_function){entry->function, entry->attribute, entry->value};
}

static struct holding *find_setting(const struct holdings *holdings, const struct wire_message *message)
{
	struct holding *entry;

	TAILQ_FOREACH_REVERSE (entry, &holdings->entries, holding_list, link)
		if (entry->type == WIRE_SET_FUNCTION && entry->function == message->set_function.function &&
			entry->attribute == message->set_function.attribute)
			break;
	return entry;
}

static void set_again(struct holdings *holdings, struct holding *entry, const struct wire_message *message)
{
	(void)holdings;
	entry->value = message->set_function.value;
}

const struct resource resource_module_load = {.check = check_load,
	.flaw = load_flaw,
	.fill = fill_module,
	.again = module_again,
	.has = has_loaded};
const struct resource resource_module_unload = {.check = check_symbol, .has = has_named, .drop = unload};
const struct resource resource_module_find_function = {.check = check_symbol,
	.fill = fill_symbol,
	.again = symbol_again,
	.cost = symbol_cost,
	.has = has_function,
	.is_named = true};
/* Asked for a second time, a variable is no second entry. */
const struct resource resource_module_find_global = {.check = check_symbol,
	.flaw = global_flaw,
	.fill = fill_symbol,
	.again = symbol_again,
	.cost = symbol_cost,
	.find_same = find_global,
	.is_named = true};
const struct resource resource_module_set_function = {.check = check_setting,
	.fill = fill_setting,
	.again = setting_again,
	.find_same = find_setting,
	.change = set_again};
const struct resource resource_module_list_functions = {.check = check_symbol};
const struct resource resource_module_query_occupancy = {.check = check_occupancy};
