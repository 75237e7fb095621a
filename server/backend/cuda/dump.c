// The driver's dump of a fault, an ELF file whose sections are tables (NVIDIA's cudacoredump.h). Tables grow
// at the end of their entries from driver to driver, so an entry is read as far as it is declared here.
// Sections are found by their type; their names say nothing that link and info do not:
//
//   grids                            modules ◄──link── images: info is the index among the modules
//   SMs ◄──link── blocks: info is the index of the SM
//                   ▲
//                   └─link── warps: info is the index of the block
//                              ▲
//                              └─link── lanes: info is the index of the warp
//
// A kernel faulted if one of its warps or lanes says so; the block says which grid it is, the grid which
// function and module. Warps that are gone by the time of the dump are in no table. Then the SM still says
// that there was an exception, and at which instruction: the module is the one whose relocated image has that
// address. An image is an ELF file itself, with the addresses of its code as section addresses.
//
// An access to an unmapped address is found out some time after its instruction: nobody waits for a write, so the warp
// may have ended. On a device that is full its place has been taken by a warp of another kernel then, and it is this
// one that the driver shows as faulting, at an instruction of the other (seen on an H200, beside PyTorch). So a warp is
// only believed if the instruction is one of its own module; otherwise it is whose the instruction is. Where warp and SM
// speak of instructions of two modules nobody can tell, and the report says that there is more.
//
// An access beyond shared memory and a stack that overflows are one exception. The instruction tells them apart, and warps
// and SMs name it exactly (two dumps of an H200, held against the compiler's output: an overflow at a store to local
// memory, its lanes seven instructions further on; a far write at its store). So a kernel all of whose instructions that
// faulted use shared memory and no other has no stack that overflowed.
//
// Sizes and offsets may be anything: every read is checked against the file, and the work is limited.

#include "server/backend/cuda/dump.h"

#include <elf.h>
#include <errno.h>
#include <string.h>

#include "server/backend/image.h"
#include "server/backend/sass.h"

#define MACHINE 0xbe /* of NVIDIA's ELF files */

enum section_type {
	SECTION_IMAGE = 0x80000007,
	SECTION_SMS = 0x8000000b,
	SECTION_GRIDS = 0x8000000c,
	SECTION_BLOCKS = 0x8000000d,
	SECTION_WARPS = 0x8000000e,
	SECTION_LANES = 0x8000000f,
	SECTION_MODULES = 0x80000010,
};

/* Symbols that are kernels carry this in st_other. */
#define SYMBOL_IS_KERNEL 0x10

/* Of an access beyond shared memory, and of a stack that overflows. */
#define EXCEPTION_OUT_OF_RANGE 5u
/* The exception of which the instruction pointer is the cause. */
#define EXCEPTION_INVALID_PC 8u
/* Of a function of the driver's, whose module is another one than the caller's. */
#define EXCEPTION_ASSERT  12u
#define EXCEPTION_SYSCALL 13u

/* Entries that are looked at, at most. */
#define WORK_MAX (UINT64_C(1) << 24)

struct grid_entry {
	uint64_t id, context, function, code, module, parent;
};

struct sm_entry {
	uint32_t id, padding, exception, has_pc;
	uint64_t pc;
};

struct block_entry {
	uint64_t grid;
	uint32_t index[3], padding;
};

struct warp_entry {
	uint64_t pc;
	uint32_t id, valid, active, is_broken, has_pc, padding;
};

struct lane_entry {
	uint64_t pc, offset;
	uint32_t id, thread[3], exception, depth;
};

/* An ELF file within the dump, or the dump. */
struct elf {
	const uint8_t *bytes;
	uint64_t size, sections, stride, count, names;
};

/* What was found out about an instruction: many threads fault at the same few. */
struct instruction {
	bool is_valid, is_code, is_shared; /* uses shared memory and no other */
	uint64_t pc, module;		   /* 0: none that is listed */
};
#define KNOWN_INSTRUCTIONS 64u

/* What was found out about a grid: many warps of the same few may seem to have faulted. */
struct grid {
	bool is_valid;
	uint64_t id;
	struct dump_kernel kernel; /* function, module and name */
};
#define KNOWN_GRIDS 16u

struct reader {
	struct elf dump;
	uint64_t work;
	struct instruction known[KNOWN_INSTRUCTIONS];
	struct grid grids[KNOWN_GRIDS];
	struct dump_report *report;
};

/* ---- bytes ---- */

static bool get(const uint8_t *bytes, uint64_t size, uint64_t offset, void *ret, uint64_t wanted)
{
	if (offset > size || wanted > size - offset)
		return false;
	memcpy(ret, bytes + offset, wanted);
	return true;
}

static bool get_section(const struct elf *elf, uint64_t index, Elf64_Shdr *ret_section)
{
	/* The table was checked when the file was opened. */
	return index < elf->count && get(elf->bytes, elf->size, elf->sections + index * elf->stride,
					     ret_section, sizeof(*ret_section));
}

/* Where a section's bytes are; NULL if they are not in the file. */
static const uint8_t *contents(const struct elf *elf, const Elf64_Shdr *section)
{
	if (section->sh_type == SHT_NOBITS || section->sh_offset > elf->size ||
		section->sh_size > elf->size - section->sh_offset)
		return NULL;
	return elf->bytes + section->sh_offset;
}

static uint64_t entries(const struct elf *elf, const Elf64_Shdr *section, uint64_t wanted)
{
	if (!contents(elf, section) || section->sh_entsize < wanted)
		return 0;
	return section->sh_size / section->sh_entsize;
}

static bool get_entry(
	const struct elf *elf, const Elf64_Shdr *section, uint64_t index, void *ret, uint64_t wanted)
{
	return index < entries(elf, section, wanted) &&
	       get(contents(elf, section), section->sh_size, index * section->sh_entsize, ret, wanted);
}

static bool elf_open(struct elf *elf, const uint8_t *bytes, uint64_t size, uint16_t type)
{
	Elf64_Shdr first;
	Elf64_Ehdr head;

	if (!get(bytes, size, 0, &head, sizeof(head)) || memcmp(head.e_ident, ELFMAG, SELFMAG) ||
		head.e_ident[EI_CLASS] != ELFCLASS64 || head.e_ident[EI_DATA] != ELFDATA2LSB ||
		head.e_machine != MACHINE || head.e_type != type || head.e_shentsize < sizeof(first) ||
		!get(bytes, size, head.e_shoff, &first, sizeof(first)))
		return false;
	*elf = (struct elf){.bytes = bytes,
		.size = size,
		.sections = head.e_shoff,
		.stride = head.e_shentsize,
		.count = head.e_shnum ? head.e_shnum : first.sh_size,
		.names = head.e_shstrndx == SHN_XINDEX ? first.sh_link : head.e_shstrndx};
	return elf->count && elf->count <= (size - elf->sections) / elf->stride;
}

/* Return: whether the work is not over its limit. */
static bool works(struct reader *reader, uint64_t count)
{
	reader->work += count;
	return reader->work <= WORK_MAX;
}

/* ---- code ---- */

static bool holds(const Elf64_Shdr *section, uint64_t address)
{
	return section->sh_flags & SHF_EXECINSTR && section->sh_addr && address >= section->sh_addr &&
	       address - section->sh_addr < section->sh_size;
}

static void copy_name(const struct elf *elf, uint64_t strings, uint64_t offset, char *name, size_t room)
{
	const uint8_t *bytes;
	Elf64_Shdr section;
	uint64_t length;

	name[0] = '\0';
	if (!get_section(elf, strings, &section) || !(bytes = contents(elf, &section)) ||
		offset >= section.sh_size)
		return;
	length = section.sh_size - offset < room - 1 ? section.sh_size - offset : room - 1;
	length = strnlen((const char *)bytes + offset, length);
	memcpy(name, bytes + offset, length);
	name[length] = '\0';
}

/* The kernel whose code a section of an image is; if it is none's alone, the section says whose it is. */
static void name_code(
	struct reader *reader, const struct elf *image, uint64_t code, struct dump_kernel *kernel)
{
	Elf64_Shdr section;
	Elf64_Sym symbol;
	char name[sizeof(kernel->name) + 6];

	for (uint64_t i = 0; i < image->count && works(reader, 1); i++) {
		uint64_t count;

		if (!get_section(image, i, &section) || section.sh_type != SHT_SYMTAB)
			continue;
		count = entries(image, &section, sizeof(symbol));
		for (uint64_t k = 0; k < count && works(reader, 1); k++) {
			if (!get_entry(image, &section, k, &symbol, sizeof(symbol)) ||
				symbol.st_shndx != code || ELF64_ST_TYPE(symbol.st_info) != STT_FUNC ||
				!(symbol.st_other & SYMBOL_IS_KERNEL))
				continue;
			copy_name(image, section.sh_link, symbol.st_name, kernel->name, sizeof(kernel->name));
			return;
		}
	}
	if (!get_section(image, code, &section))
		return;
	copy_name(image, image->names, section.sh_name, name, sizeof(name));
	if (!strncmp(name, ".text.", 6))
		memmove(kernel->name, name + 6, strlen(name + 6) + 1);
}

/* Index of the section of an image that an address is in, 0 if none. */
static uint64_t find_code(struct reader *reader, const struct elf *image, uint64_t address)
{
	Elf64_Shdr section;

	for (uint64_t i = 1; i < image->count && works(reader, 1); i++)
		if (get_section(image, i, &section) && holds(&section, address))
			return i;
	return 0;
}

static uint64_t module_of(const struct reader *reader, const Elf64_Shdr *image)
{
	Elf64_Shdr modules;
	uint64_t handle;

	if (!get_section(&reader->dump, image->sh_link, &modules) || modules.sh_type != SECTION_MODULES ||
		!get_entry(&reader->dump, &modules, image->sh_info, &handle, sizeof(handle)))
		return 0;
	return handle;
}

/* Where in the dump an address of code is. */
struct place {
	Elf64_Shdr section; /* the image */
	struct elf image;
	uint64_t code; /* index of its section */
};

/* Return: whether it is code. */
static bool find_place(struct reader *reader, uint64_t address, struct place *ret_place)
{
	const struct elf *dump = &reader->dump;
	Elf64_Shdr *section = &ret_place->section;

	for (uint64_t i = 0; i < dump->count && works(reader, 1); i++) {
		if (!get_section(dump, i, section) || section->sh_type != SECTION_IMAGE ||
			!contents(dump, section) ||
			!elf_open(&ret_place->image, contents(dump, section), section->sh_size, ET_EXEC))
			continue;
		ret_place->code = find_code(reader, &ret_place->image, address);
		if (ret_place->code)
			return true;
	}
	return false;
}

/* Fills in module and name of what is at an address, where they are not known. Return: whether it is code. */
static bool look_up_code(struct reader *reader, uint64_t address, struct dump_kernel *kernel)
{
	struct place place;

	if (!find_place(reader, address, &place))
		return false;
	if (!kernel->module)
		kernel->module = module_of(reader, &place.section);
	if (!kernel->name[0])
		name_code(reader, &place.image, place.code, kernel);
	return true;
}

static bool is_shared(const struct place *place, uint64_t pc)
{
	uint8_t instruction[SASS_INSTRUCTION_BYTES];
	const uint8_t *code;
	Elf64_Shdr section;

	if (!sass_is_known(image_architecture(place->image.bytes)) ||
		!get_section(&place->image, place->code, &section))
		return false;
	code = contents(&place->image, &section);
	return code && get(code, section.sh_size, pc - section.sh_addr, instruction, sizeof(instruction)) &&
	       sass_is_shared(instruction);
}

/* Valid until the next call. */
static const struct instruction *look_at_instruction(struct reader *reader, uint64_t pc)
{
	struct instruction *known = &reader->known[pc / SASS_INSTRUCTION_BYTES % KNOWN_INSTRUCTIONS];
	struct place place;

	if (known->is_valid && known->pc == pc)
		return known;
	*known = (struct instruction){.is_valid = true, .pc = pc, .is_code = find_place(reader, pc, &place)};
	if (known->is_code) {
		known->module = module_of(reader, &place.section);
		known->is_shared = is_shared(&place, pc);
	}
	return known;
}

/* ---- kernels ---- */

static void look_up_grid(struct reader *reader, uint64_t id, struct dump_kernel *kernel)
{
	const struct elf *dump = &reader->dump;
	struct grid_entry grid;
	Elf64_Shdr section;

	for (uint64_t i = 0; i < dump->count && works(reader, 1); i++) {
		uint64_t count;

		if (!get_section(dump, i, &section) || section.sh_type != SECTION_GRIDS)
			continue;
		count = entries(dump, &section, sizeof(grid));
		for (uint64_t k = 0; k < count && works(reader, 1); k++) {
			if (!get_entry(dump, &section, k, &grid, sizeof(grid)) || grid.id != id)
				continue;
			kernel->function = grid.function;
			kernel->module = grid.module;
			look_up_code(reader, grid.code, kernel);
			return;
		}
	}
}

/* Fills in function, module and name. */
static void fill_from_grid(struct reader *reader, struct dump_kernel *kernel)
{
	struct grid *known = &reader->grids[kernel->grid % KNOWN_GRIDS];

	if (!known->is_valid || known->id != kernel->grid) {
		*known = (struct grid){.is_valid = true, .id = kernel->grid};
		look_up_grid(reader, known->id, &known->kernel);
	}
	kernel->function = known->kernel.function;
	kernel->module = known->kernel.module;
	memcpy(kernel->name, known->kernel.name, sizeof(kernel->name));
}

/* The kernel of a grid, if it is in the report. */
static struct dump_kernel *find_grid(struct reader *reader, uint64_t grid)
{
	for (uint32_t i = 0; i < reader->report->count; i++)
		if (reader->report->kernels[i].has_block && reader->report->kernels[i].grid == grid)
			return &reader->report->kernels[i];
	return NULL;
}

/* Room for one more kernel; NULL: there is none. */
static struct dump_kernel *add(struct reader *reader)
{
	struct dump_report *report = reader->report;

	if (report->count < DUMP_KERNELS_MAX)
		return &report->kernels[report->count++];
	report->more = true;
	return NULL;
}

static uint32_t exception_of_sm(const struct reader *reader, const Elf64_Shdr *blocks)
{
	struct sm_entry sm;
	Elf64_Shdr sms;

	if (!get_section(&reader->dump, blocks->sh_link, &sms) || sms.sh_type != SECTION_SMS ||
		!get_entry(&reader->dump, &sms, blocks->sh_info, &sm, sizeof(sm)))
		return 0;
	return sm.exception;
}

/* @faulted_at: 0: not known */
static void note_stack(
	struct reader *reader, struct dump_kernel *kernel, uint64_t faulted_at, uint32_t exception)
{
	if (exception == EXCEPTION_OUT_OF_RANGE)
		kernel->may_be_stack |= !faulted_at || !look_at_instruction(reader, faulted_at)->is_shared;
}

/* A kernel of which nothing is known but an instruction that faulted. */
static void add_from_pc(struct reader *reader, uint64_t sm, uint64_t pc, uint32_t exception)
{
	struct dump_kernel *kernel;

	for (uint32_t i = 0; i < reader->report->count; i++) {
		kernel = &reader->report->kernels[i];
		if (kernel->has_block || kernel->pc != pc)
			continue;
		note_stack(reader, kernel, pc, exception);
		return;
	}
	kernel = add(reader);
	if (!kernel)
		return;
	kernel->sm = (uint32_t)sm;
	kernel->exception = exception;
	kernel->pc = pc;
	kernel->strayed = !look_up_code(reader, pc, kernel);
	note_stack(reader, kernel, pc, exception);
}

/* Whether the instruction cannot be one of that kernel: the warp has only taken the place of the one that faulted. */
static bool is_successor(
	struct reader *reader, const struct dump_kernel *kernel, uint64_t pc, uint32_t exception)
{
	const struct instruction *at;

	if (!exception || exception == EXCEPTION_ASSERT || exception == EXCEPTION_SYSCALL)
		return false;
	at = look_at_instruction(reader, pc);
	return at->is_code && at->module != kernel->module;
}

static void fill_from_block(struct reader *reader, struct dump_kernel *kernel, const Elf64_Shdr *blocks,
	const struct block_entry *block)
{
	kernel->grid = block->grid;
	kernel->sm = (uint32_t)blocks->sh_info;
	kernel->has_block = true;
	memcpy(kernel->block, block->index, sizeof(kernel->block));
	fill_from_grid(reader, kernel);
}

/*
 * A thread of a block faulted.
 * @pc: 0: not known
 * @faulted_at: the instruction that faulted; 0: not known
 */
static void add_from_block(struct reader *reader, const Elf64_Shdr *blocks, uint64_t index, uint64_t pc,
	uint64_t faulted_at, uint32_t exception)
{
	struct dump_kernel *kernel, fresh = {0};
	struct block_entry block;
	uint32_t seen;

	if (reader->report->more || !get_entry(&reader->dump, blocks, index, &block, sizeof(block)))
		return;
	seen = exception ? exception : exception_of_sm(reader, blocks);
	kernel = find_grid(reader, block.grid);
	if (!kernel)
		fill_from_block(reader, &fresh, blocks, &block);
	if (faulted_at && is_successor(reader, kernel ? kernel : &fresh, faulted_at, seen)) {
		add_from_pc(reader, blocks->sh_info, faulted_at, seen);
		return;
	}
	if (!kernel) {
		kernel = add(reader);
		if (!kernel)
			return;
		*kernel = fresh;
	}
	if (!kernel->pc)
		kernel->pc = pc;
	if (exception || !kernel->exception)
		kernel->exception = seen;
	if (faulted_at && !kernel->strayed)
		kernel->strayed = !look_at_instruction(reader, faulted_at)->is_code;
	note_stack(reader, kernel, faulted_at, seen);
}

static bool get_blocks(const struct reader *reader, const Elf64_Shdr *warps, Elf64_Shdr *ret_blocks)
{
	return get_section(&reader->dump, warps->sh_link, ret_blocks) &&
	       ret_blocks->sh_type == SECTION_BLOCKS;
}

static void look_at_warps(struct reader *reader, const Elf64_Shdr *section)
{
	uint64_t count = entries(&reader->dump, section, sizeof(struct warp_entry));
	struct warp_entry warp;
	Elf64_Shdr blocks;

	for (uint64_t i = 0; i < count && works(reader, 1); i++)
		if (get_entry(&reader->dump, section, i, &warp, sizeof(warp)) &&
			(warp.has_pc || warp.is_broken) && get_blocks(reader, section, &blocks))
			add_from_block(reader, &blocks, section->sh_info, warp.has_pc ? warp.pc : 0,
				warp.has_pc ? warp.pc : 0, 0);
}

/* Of the warp of some lanes. */
static uint64_t faulted_at(const struct reader *reader, const Elf64_Shdr *warps, uint64_t index)
{
	struct warp_entry warp;

	return get_entry(&reader->dump, warps, index, &warp, sizeof(warp)) && warp.has_pc ? warp.pc : 0;
}

static void look_at_lanes(struct reader *reader, const Elf64_Shdr *section)
{
	uint64_t count = entries(&reader->dump, section, sizeof(struct lane_entry));
	struct lane_entry lane;
	Elf64_Shdr warps, blocks;

	for (uint64_t i = 0; i < count && works(reader, 1); i++)
		if (get_entry(&reader->dump, section, i, &lane, sizeof(lane)) && lane.exception &&
			get_section(&reader->dump, section->sh_link, &warps) &&
			warps.sh_type == SECTION_WARPS && get_blocks(reader, &warps, &blocks))
			add_from_block(reader, &blocks, warps.sh_info, lane.pc,
				faulted_at(reader, &warps, section->sh_info), lane.exception);
}

/* Whether a kernel was found that faulted on this SM. One of another module than that of the SM's instruction may be it,
 * or be blamed for what another did: there is more, unless that other one was found as well, by its own warps. */
static bool is_known(struct reader *reader, uint64_t index, const struct sm_entry *sm)
{
	bool found = false, doubtful = false, explained = false;
	uint64_t module = 0;

	if (sm->has_pc)
		module = look_at_instruction(reader, sm->pc)->module;
	for (uint32_t i = 0; i < reader->report->count; i++) {
		const struct dump_kernel *kernel = &reader->report->kernels[i];

		explained |= kernel->module == module;
		if (!kernel->has_block || kernel->sm != index)
			continue;
		found = true;
		doubtful |= sm->has_pc && is_successor(reader, kernel, sm->pc, sm->exception);
	}
	reader->report->more |= doubtful && !explained;
	return found;
}

static void look_at_sms(struct reader *reader, const Elf64_Shdr *section)
{
	uint64_t count = entries(&reader->dump, section, sizeof(struct sm_entry));
	struct dump_kernel *kernel;
	struct sm_entry sm;

	for (uint64_t i = 0; i < count && works(reader, 1); i++) {
		if (!get_entry(&reader->dump, section, i, &sm, sizeof(sm)) || (!sm.exception && !sm.has_pc) ||
			is_known(reader, i, &sm))
			continue;
		if (sm.has_pc) {
			add_from_pc(reader, i, sm.pc, sm.exception);
			continue;
		}
		kernel = add(reader);
		if (!kernel)
			return;
		kernel->sm = (uint32_t)i;
		kernel->exception = sm.exception;
		note_stack(reader, kernel, 0, sm.exception);
	}
}

static void look_at(struct reader *reader, uint32_t type, void (*look)(struct reader *, const Elf64_Shdr *))
{
	Elf64_Shdr section;

	for (uint64_t i = 0; i < reader->dump.count && works(reader, 1); i++)
		if (get_section(&reader->dump, i, &section) && section.sh_type == type)
			look(reader, &section);
}

int dump_read(const void *bytes, size_t size, struct dump_report *ret_report)
{
	struct reader reader = {.report = ret_report};

	memset(ret_report, 0, sizeof(*ret_report));
	if (!elf_open(&reader.dump, bytes, size, ET_CORE))
		return -EBADMSG;
	look_at(&reader, SECTION_WARPS, look_at_warps);
	look_at(&reader, SECTION_LANES, look_at_lanes);
	look_at(&reader, SECTION_SMS, look_at_sms);
	for (uint32_t i = 0; i < ret_report->count; i++)
		ret_report->kernels[i].strayed |= ret_report->kernels[i].exception == EXCEPTION_INVALID_PC;
	return ret_report->count && works(&reader, 0) ? 0 : -EBADMSG;
}
