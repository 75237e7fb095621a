// See finding.h. Every stopped warp has a record in the save area; a warp with an access to an
// unmapped address has none, and the error state of its multiprocessor replaces the record. Both
// lead to a kernel, and code.h knows its owner. A fault without a kernel is counted as unknown, and
// nobody is guessed.

#include "server/backend/cuda/finding.h"

#include <stdio.h>
#include <string.h>

#include "server/backend/cuda/trampoline.h"
#include "server/backend/cuda/warps.h"
#include "server/backend/kernels.h"

/* Places of the kernel's entry and of the address of its bank 0 in the descriptor of a grid, in
 * pieces of 64 bytes. Measured, as in warps.h; NVIDIA's open-gpu-doc (clcbc0qmd.h) agrees. */
#define TASK_ENTRY     0x98u
#define TASK_BANK      0xc0u
#define TASK_BANK_MASK ((UINT64_C(1) << 51) - 1)
#define TASK_BANK_UNIT 64u

/* Kinds of exceptions (nvgpu, hw_gr_gv11b.h). */
enum error_kind {
	ERROR_CALL_STACK = 0x02,
	ERROR_MISALIGNED_PC = 0x05,
	ERROR_PC_OVERFLOW = 0x06,
	ERROR_ILLEGAL_ENCODING = 0x09,
	ERROR_ILLEGAL_PARAMETER = 0x0b,
	ERROR_REGISTER = 0x0d,
	ERROR_ADDRESS = 0x0e,
	ERROR_MISALIGNED = 0x0f,
	ERROR_ADDRESS_SPACE = 0x10,
	ERROR_CONSTANT = 0x12,
	ERROR_STACK = 0x16,
	ERROR_UNMAPPED = 0x17,
	ERROR_REFUSED = 0x20
};

bool finding_is_error(const struct debugger_state *state)
{
	return (state->warp_error & WARP_KIND) != 0;
}

CUresult finding_code(uint32_t error, bool in_code)
{
	switch (error & WARP_KIND) {
	case 0:
		return error == WARP_ASSERT ? CUDA_ERROR_ASSERT : CUDA_ERROR_LAUNCH_FAILED;
	case ERROR_CALL_STACK:
	case ERROR_STACK:
		return CUDA_ERROR_HARDWARE_STACK_ERROR;
	case ERROR_MISALIGNED_PC:
	case ERROR_PC_OVERFLOW:
		return CUDA_ERROR_INVALID_PC;
	case ERROR_ILLEGAL_ENCODING:
		/* A fetch outside of code is no instruction either: natively an access that
		 * failed. */
		return in_code ? CUDA_ERROR_ILLEGAL_INSTRUCTION : CUDA_ERROR_ILLEGAL_ADDRESS;
	case ERROR_ILLEGAL_PARAMETER:
	case ERROR_REGISTER:
		return CUDA_ERROR_ILLEGAL_INSTRUCTION;
	case ERROR_MISALIGNED:
		return CUDA_ERROR_MISALIGNED_ADDRESS;
	case ERROR_ADDRESS_SPACE:
		return CUDA_ERROR_INVALID_ADDRESS_SPACE;
	case ERROR_ADDRESS:
	case ERROR_CONSTANT:
	case ERROR_UNMAPPED:
	case ERROR_REFUSED:
		return CUDA_ERROR_ILLEGAL_ADDRESS;
	default:
		return CUDA_ERROR_LAUNCH_FAILED;
	}
}

/* Return: the kernel's place in the finding; BACKEND_FAULTS_MAX: there is no room */
static uint32_t place_of(struct finding *finding, const struct code *code)
{
	uint32_t i = 0;

	while (i < finding->count && finding->code[i].entry != code->entry)
		i++;
	if (i == finding->count && i < BACKEND_FAULTS_MAX) {
		finding->code[i] = *code;
		finding->faults[i] = (struct backend_fault){.module = code->module};
		snprintf(finding->faults[i].kernel, sizeof(finding->faults[i].kernel), "%s", code->kernel);
		finding->count++;
	}
	return i;
}

static struct finding_grid *find_grid(struct finding *finding, uint64_t task)
{
	struct finding_grid *grid = &finding->grids[finding->grid_last];

	if (finding->grid_count && grid->task == task)
		return grid;
	for (uint32_t i = 0; i < finding->grid_count; i++)
		if (finding->grids[i].task == task) {
			finding->grid_last = i;
			return &finding->grids[i];
		}
	return NULL;
}

/* The code that a grid's trampoline enters: the end of the grid's parameters. 0: unknown */
static uint64_t read_carried(uint64_t task, uint32_t carried)
{
	uint64_t bank, entry;

	if (!debugger_read(task + TASK_BANK, &bank, sizeof(bank)))
		return 0;
	bank = (bank & TASK_BANK_MASK) * TASK_BANK_UNIT;
	return debugger_read(bank + KERNELS_PARAMETERS + carried - sizeof(entry), &entry, sizeof(entry))
		       ? entry
		       : 0;
}

static const struct finding_grid *read_grid(struct finding *finding, uint64_t task)
{
	struct finding_grid *grid = find_grid(finding, task);
	uint64_t start, entry;
	uint32_t carried;

	if (grid)
		return grid;
	if (!debugger_read(task + TASK_ENTRY, &start, sizeof(start)))
		return NULL;
	carried = trampoline_carries(start);
	entry = carried ? read_carried(task, carried) : start;
	finding->grid_last = finding->grid_count < FINDING_GRIDS_MAX ? finding->grid_count++ : 0;
	grid = &finding->grids[finding->grid_last];
	*grid = (struct finding_grid){task, start, entry};
	return grid;
}

uint64_t finding_entry(struct finding *finding, uint64_t task)
{
	const struct finding_grid *grid = read_grid(finding, task);

	return grid ? grid->entry : 0;
}

/* The grid's descriptor names the kernel, also where the warp is in code that all programs share,
 * or in none. */
bool finding_kernel(struct finding *finding, uint64_t task, struct code *ret_code)
{
	uint64_t entry = finding_entry(finding, task);

	return entry && code_find_entry(entry, ret_code);
}

static void note_unknown(struct finding *finding, const char *what, const struct warp *warp, uint64_t pc)
{
	if (!finding->unknown)
		snprintf(finding->what, sizeof(finding->what),
			"%s: warp %u, error %#x, task %#llx, instruction %#llx", what, warp->index,
			warp->error, (unsigned long long)warp->task, (unsigned long long)pc);
	finding->unknown = true;
}

static void add_warp(struct finding *finding, const struct warp *warp)
{
	struct code code, at;
	bool in_code;
	uint32_t i;

	if (!finding_kernel(finding, warp->task, &code)) {
		note_unknown(finding, "an unknown kernel", warp, warp->return_to);
		return;
	}
	in_code = code_find(warp->return_to, &at) && at.module == code.module;
	i = place_of(finding, &code);
	if (i == BACKEND_FAULTS_MAX) {
		note_unknown(finding, "too many kernels", warp, warp->return_to);
		return;
	}
	if (finding->faults[i].code)
		return; /* the first of its warps represents the grid */
	finding->faults[i].code = finding_code(warp->error, in_code);
	finding->faults[i].address = warp->error_at ? warp->error_at : warp->return_to;
	finding->faults[i].launch = warp->grid;
	finding->faults[i].has_block = true;
	memcpy(finding->faults[i].block, warp->block, sizeof(warp->block));
}

/* True if the error in a record is of the warp that was in the slot before. */
static bool is_of_another(struct finding *finding, const struct warp *warp)
{
	const struct finding_grid *grid = read_grid(finding, warp->task);
	uint64_t entry = grid ? grid->entry : 0;
	struct code code;

	if ((warp->error & WARP_KIND) != ERROR_UNMAPPED || warp->error_at == entry)
		return false;
	return warp->return_to == entry || (grid && warp->return_to == grid->start) ||
	       (code_find(warp->error_at, &code) && code.entry != entry);
}

static void look_at_warps(struct finding *finding)
{
	struct warp warp;

	for (uint32_t i = warps_next(finding->area, 0); i < WARPS_COUNT;
		i = warps_next(finding->area, i + 1)) {
		if (!warps_read(finding->area, i, &warp))
			note_unknown(finding, "a record of another form", &warp, 0);
		else if (warp.error && !is_of_another(finding, &warp))
			add_warp(finding, &warp);
		else
			finding->excited |= (warp.reason & ~(WARP_HALTED | WARP_HELD)) != 0;
	}
}

/* True if the warp that a state names has a record, which has more detail. */
static bool has_record(struct finding *finding, uint32_t sm, const struct debugger_state *state)
{
	uint32_t index = sm * WARPS_PER_SM + (state->warp_error >> 16 & (WARPS_PER_SM - 1));
	struct warp warp;

	return warps_is_stopped(finding->area, index) && warps_read(finding->area, index, &warp) &&
	       warp.error & WARP_KIND && !is_of_another(finding, &warp);
}

static void add_state(struct finding *finding, uint32_t sm, const struct debugger_state *state)
{
	struct code code;
	uint32_t i = code_find(state->pc, &code) ? place_of(finding, &code) : BACKEND_FAULTS_MAX;

	if (i == BACKEND_FAULTS_MAX) {
		note_unknown(finding, "an error in unknown code",
			&(struct warp){.index = sm * WARPS_PER_SM, .error = state->warp_error}, state->pc);
		return;
	}
	if (finding->faults[i].code)
		return;
	finding->faults[i].code = finding_code(state->warp_error, true);
	finding->faults[i].address = state->pc;
}

static void look_at_states(struct finding *finding, const struct debugger_state *states, uint32_t sms)
{
	for (uint32_t sm = 0; sm < sms; sm++)
		if (finding_is_error(&states[sm]) && !has_record(finding, sm, &states[sm]))
			add_state(finding, sm, &states[sm]);
}

void finding_look(struct finding *finding, void *area, const struct debugger_state *states, uint32_t sms)
{
	*finding = (struct finding){.area = area};
	look_at_warps(finding);
	look_at_states(finding, states, sms);
}
