// See kernels.h. A section of a kernel names the section of its code (sh_info): its attributes
// (.nv.info.NAME), its parameters (.nv.constant0.NAME), its bank 2 and its shared memory.
// Attributes are records: format, attribute, and a value of 16 bits or so many bytes. Those of the
// module's .nv.info are pairs of a symbol and a number.
//
// An instruction has 128 bits. LDC and ULDC read banks of constants in code for devices 9.0: 1.4
// million instructions of NVIDIA's libraries and of nvcc 12 and 13 have no other operand of that
// kind. Their bank is in bits 54 to 58, their offset, in bytes, in bits 38 to 53. Another
// instruction that older compilers gave a constant operand is not understood, where the operand
// reads a bank that moves.

#include "server/backend/kernels.h"

#include <stdlib.h>
#include <string.h>

#include "server/backend/image.h"
#include "server/backend/movable.h"

/* In st_other: a kernel. */
#define OTHER_ENTRY 0x10u

#define SECTIONS_MAX 65536u
#define PARTS_MAX    65536u
/* Of a part, which may have no bytes in the file. */
#define PART_BYTES_MAX (UINT64_C(1) << 30)
/* A bound on the number of looks at a byte of the file. Compilers' sections do not overlap. */
#define LOOKS 8u

/* ABI of the file, which decides the places of registers, barriers and shared memory. */
#define ABI_NEW		    8
#define OLD_BARRIERS(flags) ((uint32_t)((flags) >> 20 & 0x7f))
#define OLD_VIRTUAL(flags)  ((int32_t)((flags) >> 16 & 0xff))
/* Of shared memory, at its beginning, for the driver. Newer compilers name this part, and count
 * it. */
#define SHARED_RESERVED 0x400u
#define RESERVED_NAME	".nv.reservedSmem"
#define SHARED_MAX	49152

/* Attributes: of the module, pairs; of a kernel. */
#define INFO_FRAME	      0x11u
#define INFO_LEAST_STACK      0x12u
#define INFO_MOST_STACK	      0x23u
#define INFO_REGISTERS	      0x2fu
#define INFO_MOST_THREADS     0x05u
#define INFO_THREADS	      0x10u
#define INFO_PARAMETER	      0x17u
#define INFO_PARAMETER_BYTES  0x19u
#define INFO_PARAMETER_LONG   0x45u
#define INFO_CLUSTER	      0x3du
#define INFO_EXPLICIT_CLUSTER 0x3eu
#define INFO_MOST_CLUSTER     0x3fu
#define INFO_BARRIERS	      0x4cu
#define INFO_COUNTS_CLUSTERS  0x5bu
#define FORMAT_BYTE	      2u
#define FORMAT_SIZED	      4u

#define ADDRESS_BYTES 8u

#define CODE_BYTES     16u
#define LDC	       0xb82u
#define ULDC	       0xab9u
#define ULDC_AT	       0xabbu /* with an index in a register */
#define BAR	       0xb1du
#define KIND_LAST      3u
#define KIND_SECOND    5u
#define BANK_JUMPS     2u
#define BANK_CONSTANTS 3u
#define BANK_SLOTS     4u
/* In bank 0: the address of bank 3. */
#define CONSTANTS_ADDRESS 0xd0u
#define RZ		  255u
/* Kinds of relocations: halves of a kernel's launch information for launches from the device. */
#define LAUNCHED_LOWER 62u
#define LAUNCHED_UPPER 63u
/* The target of a call in the two words of an instruction (MOVABLE_CALL). */
#define CALL_UNIT      4u
#define CALL_LOW_MASK  UINT64_C(0xfffffffc00ff0000)
#define CALL_HIGH_MASK UINT64_C(0x1ffff)

/* The addend of an index is a signed number of 16 bits: tables and constants move below that. */
#define OFFSETS_END 0x8000u
/* Addresses in a module's table that instructions can name: offsets have 16 bits. */
#define SLOTS_MAX  (0x10000u / ADDRESS_BYTES)
#define TAIL_ALIGN 16u

/* ---- small things ---- */

static bool refuse(struct kernels *kernels, enum load_reason why)
{
	if (!kernels->why)
		kernels->why = why;
	return false;
}

static bool spend(struct kernels *kernels, uint64_t bytes)
{
	if (bytes > kernels->work)
		return refuse(kernels, LOAD_REASON_OVERLAP);
	kernels->work -= bytes;
	return true;
}

static unsigned bits(uint64_t word, unsigned from, unsigned count)
{
	return (unsigned)(word >> from & ((UINT64_C(1) << count) - 1));
}

static uint32_t word_at(const uint8_t *at)
{
	uint32_t word;

	memcpy(&word, at, sizeof(word));
	return word;
}

static bool is_new(const struct kernels *kernels)
{
	return kernels->elf.header.e_ident[EI_ABIVERSION] >= ABI_NEW;
}

static const char *section_name(const struct kernels *kernels, const Elf64_Shdr *section)
{
	Elf64_Shdr names = elf_section(&kernels->elf, kernels->elf.names);

	return elf_text(&kernels->elf, &names, section->sh_name);
}

static Elf64_Sym symbol_at(const struct kernels *kernels, uint64_t index)
{
	return elf_symbol(&kernels->elf, &kernels->symbols.table, index);
}

static bool is_code(const Elf64_Shdr *section)
{
	return section->sh_type == SHT_PROGBITS && (section->sh_flags & SHF_EXECINSTR);
}

/* ---- kernels by their symbols ---- */

static int by_section(const void *a, const void *b)
{
	const struct kernels_kernel *one = a, *other = b;

	return one->section < other->section ? -1 : one->section > other->section;
}

static int by_name(const void *a, const void *b)
{
	const struct kernels_kernel *const *one = a, *const *other = b;

	return strcmp((*one)->name, (*other)->name);
}

/* Nobody knows a kernel by its place before. */
static CUresult sort(struct kernels *kernels)
{
	kernels->by_name = calloc(kernels->count + 1, sizeof(kernels->by_name[0]));
	if (!kernels->by_name)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (!kernels->count)
		return CUDA_SUCCESS;
	qsort(kernels->at, kernels->count, sizeof(kernels->at[0]), by_section);
	for (uint32_t i = 0; i < kernels->count; i++)
		kernels->by_name[i] = &kernels->at[i];
	qsort(kernels->by_name, kernels->count, sizeof(kernels->by_name[0]), by_name);
	return CUDA_SUCCESS;
}

static bool is_kernel(const Elf64_Sym *symbol)
{
	return ELF64_ST_TYPE(symbol->st_info) == STT_FUNC && (symbol->st_other & OTHER_ENTRY) &&
	       symbol->st_shndx != SHN_UNDEF;
}

static bool add_kernel(struct kernels *kernels, const Elf64_Sym *symbol, uint32_t *owners)
{
	const char *name = elf_text(&kernels->elf, &kernels->symbols.texts, symbol->st_name);
	Elf64_Shdr section;

	if (!name || symbol->st_shndx >= kernels->elf.count || !spend(kernels, strlen(name)))
		return refuse(kernels, LOAD_REASON_SYMBOLS);
	section = elf_section(&kernels->elf, symbol->st_shndx);
	if (!is_code(&section) || section.sh_size % CODE_BYTES || symbol->st_value ||
		owners[symbol->st_shndx])
		return refuse(kernels, LOAD_REASON_CODE_PLACE);
	kernels->at[kernels->count] = (struct kernels_kernel){.name = name, .section = symbol->st_shndx};
	owners[symbol->st_shndx] = ++kernels->count;
	return true;
}

/* @owners: by section: the kernel of the code, counted from 1 */
static CUresult find_kernels(struct kernels *kernels, uint32_t *owners)
{
	uint64_t count = 0;

	if (!spend(kernels, kernels->symbols.table.sh_size))
		return CUDA_SUCCESS;
	for (uint64_t i = 1; i < kernels->symbols.count; i++) {
		Elf64_Sym symbol = symbol_at(kernels, i);

		count += is_kernel(&symbol);
		kernels->counts_reserved |= elf_text_begins(&kernels->elf, &kernels->symbols.texts,
			symbol.st_name, RESERVED_NAME, sizeof(RESERVED_NAME) - 1);
	}
	kernels->at = calloc(count + 1, sizeof(kernels->at[0]));
	if (!kernels->at)
		return CUDA_ERROR_OUT_OF_MEMORY;
	for (uint64_t i = 1; !kernels->why && i < kernels->symbols.count; i++) {
		Elf64_Sym symbol = symbol_at(kernels, i);

		if (is_kernel(&symbol))
			add_kernel(kernels, &symbol, owners);
	}
	return CUDA_SUCCESS;
}

/* ---- attributes ---- */

struct record {
	unsigned format, attribute;
	uint32_t value, bytes; /* value: without bytes */
	const uint8_t *at;
};

/* The next record. @at: moves on. Return: false at the end, or for an invalid record */
static bool next_record(const uint8_t **at, const uint8_t *end, struct record *ret)
{
	uint32_t length;

	if (end - *at < 4)
		return false;
	length = (*at)[2] | (uint32_t)(*at)[3] << 8;
	*ret = (struct record){.format = (*at)[0], .attribute = (*at)[1], .value = length, .at = *at + 4};
	if (ret->format == FORMAT_SIZED)
		ret->bytes = length;
	if (ret->format == FORMAT_BYTE)
		ret->value &= 0xff;
	if (ret->bytes > (uint64_t)(end - ret->at))
		return false;
	*at = ret->at + ret->bytes;
	return true;
}

static void note_pair(struct kernels *kernels, const struct record *record, const uint32_t *owners)
{
	uint32_t symbol_index = word_at(record->at), value = word_at(record->at + 4), owner;
	struct kernels_kernel *kernel;
	Elf64_Sym symbol;

	if (symbol_index >= kernels->symbols.count)
		return;
	symbol = symbol_at(kernels, symbol_index);
	owner = is_kernel(&symbol) && symbol.st_shndx < kernels->elf.count ? owners[symbol.st_shndx] : 0;
	if (!owner)
		return;
	kernel = &kernels->at[owner - 1];
	switch (record->attribute) {
	case INFO_REGISTERS:
		kernel->registers = value;
		break;
	case INFO_FRAME:
		kernel->attributes[CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES] = (int32_t)value;
		/* fall through */
	case INFO_LEAST_STACK:
	case INFO_MOST_STACK:
		kernel->stack = value > kernel->stack && value != UINT32_MAX ? value : kernel->stack;
		break;
	default:
		break;
	}
}

static void read_module_info(struct kernels *kernels, const Elf64_Shdr *section, const uint32_t *owners)
{
	const uint8_t *at = kernels->elf.image + section->sh_offset, *end = at + section->sh_size;
	struct record record;

	if (!spend(kernels, section->sh_size))
		return;
	while (next_record(&at, end, &record))
		if (record.bytes == 8)
			note_pair(kernels, &record, owners);
	if (at != end)
		refuse(kernels, LOAD_REASON_ATTRIBUTES);
}

/* The product of three numbers, as far as a block can have so many threads. */
static int32_t threads_of(const uint8_t *at)
{
	uint64_t threads = (uint64_t)word_at(at) * (word_at(at + 4) & 0xffff) * (word_at(at + 8) & 0xffff);

	return threads < 1024 ? (int32_t)threads : 1024;
}

static void note_shape(struct backend_shape *shape, const struct record *record)
{
	if (record->attribute == INFO_THREADS && record->bytes == 12)
		for (unsigned i = 0; i < 3; i++)
			shape->block[i] = word_at(record->at + 4 * i);
	if (record->attribute == INFO_MOST_CLUSTER && record->bytes == 4)
		shape->cluster_most = word_at(record->at);
	shape->counts_clusters |= record->attribute == INFO_COUNTS_CLUSTERS;
}

void kernels_shape(const uint8_t *info, uint64_t bytes, struct backend_shape *ret_shape)
{
	const uint8_t *end = info + bytes;
	struct record record;

	while (next_record(&info, end, &record))
		note_shape(ret_shape, &record);
}

static void note_of_kernel(struct kernels_kernel *kernel, const struct record *record)
{
	int32_t *attributes = kernel->attributes;

	switch (record->attribute) {
	case INFO_MOST_THREADS:
		if (record->bytes == 12)
			attributes[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK] = threads_of(record->at);
		break;
	case INFO_PARAMETER_BYTES:
		kernel->parameters = record->value;
		break;
	case INFO_BARRIERS:
		kernel->barriers = record->value;
		break;
	case INFO_EXPLICIT_CLUSTER:
		attributes[CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET] = 1;
		break;
	case INFO_CLUSTER:
		if (record->bytes != 12 || !word_at(record->at))
			break;
		attributes[CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH] = (int32_t)word_at(record->at);
		attributes[CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT] = (int32_t)word_at(record->at + 4);
		attributes[CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH] = (int32_t)word_at(record->at + 8);
		break;
	default:
		break;
	}
}

static void read_kernel_info(
	struct kernels *kernels, const Elf64_Shdr *section, struct kernels_kernel *kernel)
{
	const uint8_t *at = kernels->elf.image + section->sh_offset, *end = at + section->sh_size;
	struct record record;

	if (kernel->info_bytes || section->sh_offset > UINT32_MAX || section->sh_size > UINT32_MAX) {
		refuse(kernels, LOAD_REASON_ATTRIBUTES);
		return;
	}
	if (!spend(kernels, section->sh_size))
		return;
	kernel->info = (uint32_t)section->sh_offset;
	kernel->info_bytes = (uint32_t)section->sh_size;
	while (next_record(&at, end, &record)) {
		note_of_kernel(kernel, &record);
		note_shape(&kernel->shape, &record);
	}
	if (kernel->shape.counts_clusters)
		refuse(kernels, LOAD_REASON_CLUSTERS);
	if (at != end)
		refuse(kernels, LOAD_REASON_ATTRIBUTES);
}

/* ---- sections ---- */

static struct kernels_kernel *owner_of(
	struct kernels *kernels, const Elf64_Shdr *section, const uint32_t *owners)
{
	uint32_t owner = section->sh_info < kernels->elf.count ? owners[section->sh_info] : 0;

	return owner ? &kernels->at[owner - 1] : NULL;
}

/* Makes room by doubling. */
static bool has_room(struct kernels *kernels)
{
	uint32_t count = kernels->part_count;
	struct kernels_part *grown;

	if (count & (count + 1))
		return true;
	grown = realloc(kernels->parts, 2 * ((size_t)count + 1) * sizeof(*grown));
	kernels->parts = grown ? grown : kernels->parts;
	return grown != NULL;
}

static void add_part(struct kernels *kernels, uint64_t index, const Elf64_Shdr *section)
{
	if (kernels->part_count == PARTS_MAX || section->sh_size > PART_BYTES_MAX || !has_room(kernels)) {
		refuse(kernels, LOAD_REASON_PARTS);
		return;
	}
	kernels->parts[kernels->part_count++] = (struct kernels_part){.section = (uint32_t)index,
		.bytes = section->sh_size,
		.is_code = is_code(section),
		.is_zero = section->sh_type == SHT_NOBITS};
	kernels->has_place[index] = true;
}

static void note_shared(struct kernels *kernels, const Elf64_Shdr *section, struct kernels_kernel *kernel)
{
	uint64_t bytes = section->sh_size;

	if (kernels->counts_reserved)
		bytes -= bytes < SHARED_RESERVED ? bytes : SHARED_RESERVED;
	if (!kernel || bytes > SHARED_MAX)
		refuse(kernels, LOAD_REASON_SHARED);
	else
		kernel->shared = (uint32_t)bytes;
}

static void note_jumps(
	struct kernels *kernels, uint64_t index, const Elf64_Shdr *section, struct kernels_kernel *kernel)
{
	if (!kernel || kernel->jumps || section->sh_type != SHT_PROGBITS)
		refuse(kernels, LOAD_REASON_BANKS);
	else
		kernel->jumps = (uint32_t)index;
}

/* The only section of its kind, for the whole module. */
static void note_bank(struct kernels *kernels, uint64_t index, const Elf64_Shdr *section, uint32_t *io)
{
	if (*io || section->sh_type != SHT_PROGBITS || section->sh_size > 65536)
		refuse(kernels, LOAD_REASON_BANKS);
	*io = (uint32_t)index;
}

static bool begins(const char *name, const char *with)
{
	return !strncmp(name, with, strlen(with));
}

/* A section that is loaded. */
static void note_loaded(
	struct kernels *kernels, uint64_t index, const Elf64_Shdr *section, const uint32_t *owners)
{
	struct kernels_kernel *kernel = owner_of(kernels, section, owners);
	const char *name = section_name(kernels, section);

	if (!name)
		refuse(kernels, LOAD_REASON_SECTION_NAMES);
	else if (is_code(section) && owners[index])
		kernels->at[owners[index] - 1].barriers = OLD_BARRIERS(section->sh_flags);
	else if (begins(name, ".nv.shared.reserved"))
		return;
	else if (begins(name, ".nv.shared."))
		note_shared(kernels, section, kernel);
	else if (begins(name, ".nv.constant0."))
		return;
	else if (begins(name, ".nv.constant2."))
		note_jumps(kernels, index, section, kernel);
	else if (!strcmp(name, ELF_CONSTANTS))
		note_bank(kernels, index, section, &kernels->constants);
	else if (!strcmp(name, ELF_SLOTS))
		note_bank(kernels, index, section, &kernels->slots);
	else if (is_code(section) ||
		 ((!strcmp(name, ".nv.global") || !strcmp(name, ".nv.global.init")) &&
			 (section->sh_type == SHT_PROGBITS || section->sh_type == SHT_NOBITS)))
		add_part(kernels, index, section);
	else
		refuse(kernels, LOAD_REASON_SECTIONS);
}

static void read_sections(struct kernels *kernels, const uint32_t *owners)
{
	for (uint64_t i = 1; !kernels->why && i < kernels->elf.count; i++) {
		Elf64_Shdr section = elf_section(&kernels->elf, i);

		if ((section.sh_flags & SHF_ALLOC) && section.sh_size)
			note_loaded(kernels, i, &section, owners);
	}
	for (uint64_t i = 1; !kernels->why && i < kernels->elf.count; i++) {
		Elf64_Shdr section = elf_section(&kernels->elf, i);
		struct kernels_kernel *kernel =
			section.sh_type == KERNELS_INFO ? owner_of(kernels, &section, owners) : NULL;

		if (kernel)
			read_kernel_info(kernels, &section, kernel);
		else if (section.sh_type == KERNELS_INFO && !section.sh_info)
			read_module_info(kernels, &section, owners);
	}
}

/* ---- relocations ---- */

struct relocation {
	uint64_t offset, addend;
	uint32_t symbol, type;
};

/* Visits everything that relocations put into a section. */
typedef void visit_fn(const struct kernels *kernels, const struct relocation *one, void *context);

static void visit(const struct kernels *kernels, uint64_t target, visit_fn *each, void *context)
{
	const struct elf *elf = &kernels->elf;
	Elf64_Shdr section;

	if (!kernels->relocations[target])
		return;
	section = elf_section(elf, kernels->relocations[target]);
	for (uint64_t at = 0; section.sh_size - at >= sizeof(Elf64_Rela); at += sizeof(Elf64_Rela)) {
		struct relocation one;
		Elf64_Rela rela;

		memcpy(&rela, elf->image + section.sh_offset + at, sizeof(rela));
		one = (struct relocation){rela.r_offset, (uint64_t)rela.r_addend,
			(uint32_t)ELF64_R_SYM(rela.r_info), (uint32_t)ELF64_R_TYPE(rela.r_info)};
		each(kernels, &one, context);
	}
}

/* A name that nothing of the file defines. */
static bool is_needed(const Elf64_Sym *symbol)
{
	return symbol->st_shndx == SHN_UNDEF && ELF64_ST_BIND(symbol->st_info) != STB_WEAK;
}

/* Return: true for a kernel's code */
static bool name_kernel(struct kernels *kernels, uint32_t section)
{
	for (uint32_t i = 0; spend(kernels, 1) && i < kernels->count; i++)
		if (kernels->at[i].section == section) {
			kernels->at[i].is_named = true;
			kernels->has_place[section] = true;
			return true;
		}
	return false;
}

static enum load_reason unknown_kind(uint32_t type, bool in_code)
{
	if (type == LAUNCHED_LOWER || type == LAUNCHED_UPPER)
		return LOAD_REASON_LAUNCHES;
	return in_code ? LOAD_REASON_CODE_RELOCATIONS : LOAD_REASON_TABLE_RELOCATIONS;
}

static bool fits(struct kernels *kernels, const Elf64_Shdr *target, const Elf64_Rela *rela)
{
	uint32_t type = (uint32_t)ELF64_R_TYPE(rela->r_info);
	bool in_code = is_code(target);
	uint64_t bytes = in_code ? CODE_BYTES : ADDRESS_BYTES;
	Elf64_Sym symbol;

	if (ELF64_R_SYM(rela->r_info) >= kernels->symbols.count || target->sh_type != SHT_PROGBITS ||
		target->sh_size < bytes || rela->r_offset > target->sh_size - bytes ||
		(in_code && rela->r_offset % CODE_BYTES))
		return refuse(kernels, LOAD_REASON_RELOCATIONS);
	if (in_code ? type != MOVABLE_LOWER && type != MOVABLE_UPPER && type != MOVABLE_CALL
		    : type != MOVABLE_ADDRESS && type != MOVABLE_GENERIC)
		return refuse(kernels, unknown_kind(type, in_code));
	symbol = symbol_at(kernels, ELF64_R_SYM(rela->r_info));
	if (is_needed(&symbol))
		return refuse(kernels, LOAD_REASON_CALLS);
	if (symbol.st_shndx == SHN_UNDEF)
		return true;
	if (symbol.st_shndx >= kernels->elf.count)
		return refuse(kernels, LOAD_REASON_RELOCATIONS);
	if (!kernels->has_place[symbol.st_shndx] && !name_kernel(kernels, symbol.st_shndx))
		return refuse(kernels, LOAD_REASON_UNLOADED);
	return true;
}

static void check_relocations(struct kernels *kernels)
{
	const struct elf *elf = &kernels->elf;

	for (uint64_t i = 1; !kernels->why && i < elf->count; i++) {
		Elf64_Shdr section = elf_section(elf, i), target;

		if (!elf_relocates(elf, &section))
			continue;
		if (section.sh_type != SHT_RELA || section.sh_entsize != sizeof(Elf64_Rela) ||
			section.sh_link != kernels->symbols.index || section.sh_info >= elf->count ||
			kernels->relocations[section.sh_info] || !spend(kernels, section.sh_size)) {
			refuse(kernels, LOAD_REASON_RELOCATIONS);
			return;
		}
		target = elf_section(elf, section.sh_info);
		kernels->relocations[section.sh_info] = (uint32_t)i;
		for (uint64_t at = 0; !kernels->why && section.sh_size - at >= sizeof(Elf64_Rela);
			at += sizeof(Elf64_Rela)) {
			Elf64_Rela rela;

			memcpy(&rela, elf->image + section.sh_offset + at, sizeof(rela));
			/* Kernels carry whole addresses of the table. */
			if (section.sh_info == kernels->slots && rela.r_offset % ADDRESS_BYTES)
				refuse(kernels, LOAD_REASON_RELOCATIONS);
			else
				fits(kernels, &target, &rela);
		}
	}
}

static uint64_t address_of(const struct kernels *kernels, const struct relocation *one)
{
	Elf64_Sym symbol = symbol_at(kernels, one->symbol);

	if (symbol.st_shndx == SHN_UNDEF || symbol.st_shndx >= kernels->elf.count)
		return one->addend;
	return kernels->places[symbol.st_shndx] + symbol.st_value + one->addend;
}

static void put_call(uint8_t *at, uint64_t address)
{
	uint64_t low, high, target = address / CALL_UNIT;

	memcpy(&low, at, sizeof(low));
	memcpy(&high, at + sizeof(low), sizeof(high));
	low = (low & ~CALL_LOW_MASK) | (target & 0xff) << 16 | target >> 8 << 34;
	high = (high & ~CALL_HIGH_MASK) | (target >> 38 & CALL_HIGH_MASK);
	memcpy(at, &low, sizeof(low));
	memcpy(at + sizeof(low), &high, sizeof(high));
}

/* visit_fn. @context: the section's bytes */
static void put(const struct kernels *kernels, const struct relocation *one, void *context)
{
	uint64_t address = address_of(kernels, one);
	uint32_t half = (uint32_t)(one->type == MOVABLE_UPPER ? address >> 32 : address);
	uint8_t *at = (uint8_t *)context + one->offset;

	if (one->type == MOVABLE_CALL)
		put_call(at, address);
	else if (one->type == MOVABLE_LOWER || one->type == MOVABLE_UPPER)
		memcpy(at + MOVABLE_HALF_BYTES, &half, sizeof(half));
	else
		memcpy(at, &address, sizeof(address));
}

static void fill(const struct kernels *kernels, uint32_t index, uint8_t *ret)
{
	Elf64_Shdr section = elf_section(&kernels->elf, index);

	if (section.sh_type == SHT_NOBITS) {
		memset(ret, 0, section.sh_size);
		return;
	}
	memcpy(ret, kernels->elf.image + section.sh_offset, section.sh_size);
	visit(kernels, index, put, ret);
}

/* ---- instructions ---- */

static bool is_load(uint64_t low)
{
	unsigned operation = bits(low, 0, 12);

	return operation == LDC || operation == ULDC || operation == ULDC_AT;
}

static uint64_t offset_of(uint64_t low)
{
	return bits(low, 38, 16);
}

/* True if a load adds a register to its offset. */
static bool has_index(uint64_t low)
{
	unsigned none = bits(low, 0, 12) == LDC ? RZ : 0;

	return bits(low, 0, 12) == ULDC_AT || bits(low, 24, 8) != none;
}

/* True if a load may read the word of bank 0 with the address of bank 3. */
static bool may_know_constants(uint64_t low)
{
	return bits(low, 54, 5) == 0 && offset_of(low) < CONSTANTS_ADDRESS + ADDRESS_BYTES &&
	       (has_index(low) || offset_of(low) + 16 > CONSTANTS_ADDRESS);
}

static void limit_offset(struct kernels *kernels, uint64_t most)
{
	if (kernels->constant_offset_most > most)
		kernels->constant_offset_most = (uint32_t)most & ~(KERNELS_CONSTANT_ALIGN - 1);
}

/* Beside an index, an offset from OFFSETS_END on is a negative number, to which anything can be
 * added. */
static void note_constants(struct kernels *kernels, uint64_t low)
{
	if (bits(low, 54, 5) == BANK_CONSTANTS) {
		kernels->reads_constants = true;
		if (offset_of(low) < OFFSETS_END)
			limit_offset(kernels, OFFSETS_END - 1 - offset_of(low));
		else if (!has_index(low))
			limit_offset(kernels, 0);
	} else if (may_know_constants(low)) {
		kernels->reads_constants = true;
		limit_offset(kernels, 0);
	}
}

/* Code that reads banks: is all of the code understood, and does any of it read bank 3? */
static void read_code(struct kernels *kernels, bool of_kernel, const Elf64_Shdr *section)
{
	const uint8_t *code = kernels->elf.image + section->sh_offset;

	if (!spend(kernels, section->sh_size))
		return;
	for (uint64_t at = 0; !kernels->why && at < section->sh_size; at += CODE_BYTES) {
		uint64_t low, high;
		unsigned kind, bank;

		memcpy(&low, code + at, sizeof(low));
		memcpy(&high, code + at + sizeof(low), sizeof(high));
		kind = bits(low, 9, 3);
		bank = bits(low, 54, 5);
		if (is_load(low) && bits(high, 14, 2))
			refuse(kernels, LOAD_REASON_BANK_NUMBER);
		else if (is_load(low) && !of_kernel && bank == BANK_SLOTS)
			refuse(kernels, LOAD_REASON_TABLES);
		else if (is_load(low) && !of_kernel && bank == BANK_JUMPS)
			kernels->functions_jump = true;
		else if (is_load(low))
			note_constants(kernels, low);
		else if ((kind == KIND_LAST || kind == KIND_SECOND) && bits(low, 0, 12) != BAR &&
			 bank >= BANK_JUMPS && bank <= BANK_SLOTS)
			refuse(kernels, LOAD_REASON_READS);
	}
}

static bool has_banks(const struct kernels *kernels)
{
	bool has = kernels->constants || kernels->slots;

	for (uint32_t i = 0; !has && i < kernels->count; i++)
		has = kernels->at[i].jumps;
	return has;
}

static void read_codes(struct kernels *kernels, const uint32_t *owners)
{
	kernels->constant_offset_most = OFFSETS_END;
	limit_offset(
		kernels, kernels->constant_bytes < OFFSETS_END ? OFFSETS_END - kernels->constant_bytes : 0);
	for (uint64_t i = 1; has_banks(kernels) && !kernels->why && i < kernels->elf.count; i++) {
		Elf64_Shdr section = elf_section(&kernels->elf, i);

		if (is_code(&section) && section.sh_size % CODE_BYTES)
			refuse(kernels, LOAD_REASON_CODE);
		else if (is_code(&section))
			read_code(kernels, owners[i] != 0, &section);
	}
	kernels->reads_constants &= kernels->constants != 0;
}

/* ---- tables of addresses ---- */

static uint32_t section_bytes(const struct kernels *kernels, uint32_t index)
{
	return index ? (uint32_t)elf_section(&kernels->elf, index).sh_size : 0;
}

/* What a kernel reads of its module's table of addresses. A module has an address for each
 * assertion, say, and a kernel needs a few of them: it carries those, in their order. */
struct slots {
	uint32_t count;		   /* of the table */
	uint32_t carried;	   /* of these, by the kernel */
	uint16_t place[SLOTS_MAX]; /* 1 + the place of a slot among those; 0: not carried */
};

static struct slots all_slots(uint32_t count)
{
	struct slots slots = {.count = count, .carried = count};

	for (uint32_t i = 0; i < count && i < SLOTS_MAX; i++)
		slots.place[i] = (uint16_t)(i + 1);
	return slots;
}

/* Bytes that a load reads; 0: unknown. */
static uint32_t load_bytes(uint64_t high)
{
	static const uint8_t sizes[] = {1, 1, 2, 2, 4, 8};
	unsigned size = bits(high, 9, 3);

	return size < sizeof(sizes) ? sizes[size] : 0;
}

/* Return: false: what it reads is not known. @io: place[] is 1 for each slot that is read */
static bool note_load(const uint8_t *at, struct slots *io)
{
	uint64_t low, high, end;
	uint32_t bytes;

	memcpy(&low, at, sizeof(low));
	memcpy(&high, at + sizeof(low), sizeof(high));
	if (!is_load(low) || bits(low, 54, 5) != BANK_SLOTS)
		return true;
	bytes = load_bytes(high);
	end = offset_of(low) + bytes;
	if (has_index(low) || !bytes || end > (uint64_t)io->count * ADDRESS_BYTES)
		return false;
	for (uint64_t i = offset_of(low) / ADDRESS_BYTES; i * ADDRESS_BYTES < end; i++)
		io->place[i] = 1;
	return true;
}

static struct slots slots_of(const struct kernels *kernels, const struct kernels_kernel *kernel)
{
	struct slots slots = {
		.count = (section_bytes(kernels, kernels->slots) + ADDRESS_BYTES - 1) / ADDRESS_BYTES};
	Elf64_Shdr section = elf_section(&kernels->elf, kernel->section);
	const uint8_t *code = kernels->elf.image + section.sh_offset;

	if (slots.count > SLOTS_MAX)
		return all_slots(slots.count);
	for (uint64_t at = 0; slots.count && at < section.sh_size; at += CODE_BYTES)
		if (!note_load(code + at, &slots))
			return all_slots(slots.count);
	for (uint32_t i = 0; i < slots.count; i++)
		if (slots.place[i])
			slots.place[i] = (uint16_t)++slots.carried;
	return slots;
}

/* The offset in what is carried of an offset in the table. */
static uint64_t carried_offset(const struct slots *slots, uint64_t offset)
{
	return (slots->place[offset / ADDRESS_BYTES] - 1u) * ADDRESS_BYTES + offset % ADDRESS_BYTES;
}

struct slots_room {
	const struct slots *slots;
	uint8_t *at;
};

/* visit_fn. @context: struct slots_room */
static void put_slot(const struct kernels *kernels, const struct relocation *one, void *context)
{
	struct slots_room *room = context;
	struct relocation moved = *one;

	if (!room->slots->place[one->offset / ADDRESS_BYTES])
		return;
	moved.offset = carried_offset(room->slots, one->offset);
	put(kernels, &moved, room->at);
}

/* @ret: zeros, 8 bytes for each slot that is carried */
static void fill_slots(const struct kernels *kernels, const struct slots *slots, uint8_t *ret)
{
	struct slots_room room = {slots, ret};
	Elf64_Shdr section = elf_section(&kernels->elf, kernels->slots);

	for (uint32_t i = 0; section.sh_type != SHT_NOBITS && i < slots->count; i++) {
		uint64_t at = (uint64_t)i * ADDRESS_BYTES, rest = section.sh_size - at;

		if (slots->place[i])
			memcpy(ret + carried_offset(slots, at), kernels->elf.image + section.sh_offset + at,
				rest < ADDRESS_BYTES ? rest : ADDRESS_BYTES);
	}
	visit(kernels, kernels->slots, put_slot, &room);
}

/* ---- kernels, settled ---- */

/* As computed by a driver: warps get registers in pieces of 256, and there are 16384 for each
 * quarter of a multiprocessor. */
static int32_t threads_that_fit(uint32_t registers)
{
	uint32_t of_warp = (registers * 32 + 255) / 256 * 256;
	uint32_t warps = of_warp ? 16384 / of_warp * 4 : 32;

	return warps < 32 ? (int32_t)warps * 32 : 1024;
}

static int32_t virtual_architecture(const struct kernels *kernels)
{
	for (uint64_t i = 1; is_new(kernels) && i < kernels->elf.count; i++) {
		Elf64_Shdr section = elf_section(&kernels->elf, i);
		const uint8_t *at;

		if (section.sh_type != SHT_NOTE || section.sh_size < 32 ||
			!elf_section_is(&kernels->elf, &section, ".note.nv.cuinfo"))
			continue;
		/* Behind the note's head and name: a version, and the architecture. */
		at = kernels->elf.image + section.sh_offset;
		return at[26] | at[27] << 8;
	}
	return OLD_VIRTUAL(kernels->elf.header.e_flags);
}

static uint32_t tail_of(const struct kernels_kernel *kernel)
{
	return (kernel->parameters + TAIL_ALIGN - 1) & ~(TAIL_ALIGN - 1);
}

/* Where the addresses lie in a tail: behind the tables of jumps. */
static uint32_t addresses_at(const struct kernels *kernels, const struct kernels_kernel *kernel)
{
	return (section_bytes(kernels, kernel->jumps) + ADDRESS_BYTES - 1) & ~(ADDRESS_BYTES - 1);
}

static uint32_t tail_bytes(const struct kernels *kernels, const struct kernels_kernel *kernel)
{
	uint32_t carried = slots_of(kernels, kernel).carried;

	return carried ? addresses_at(kernels, kernel) + carried * ADDRESS_BYTES
		       : section_bytes(kernels, kernel->jumps);
}

/* A function reads its tables of jumps at one place, whichever kernel has called it: these kernels
 * have their tails at the same place, behind the parameters of all. */
static void find_common_tail(struct kernels *kernels)
{
	for (uint32_t i = 0; kernels->functions_jump && i < kernels->count; i++)
		if (kernels->at[i].jumps && tail_of(&kernels->at[i]) > kernels->common_tail)
			kernels->common_tail = tail_of(&kernels->at[i]);
}

static void settle(struct kernels *kernels, struct kernels_kernel *kernel, int32_t virtual)
{
	int32_t *attributes = kernel->attributes;
	int32_t most = attributes[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK],
		fit = threads_that_fit(kernel->registers);
	uint32_t end;

	kernel->tail = kernels->functions_jump && kernel->jumps ? kernels->common_tail : tail_of(kernel);
	kernel->tail_bytes = tail_bytes(kernels, kernel);
	end = kernel->tail + kernel->tail_bytes;
	if (kernel->jumps && section_bytes(kernels, kernel->jumps) > KERNELS_CARRIED_MAX)
		end = UINT32_MAX;
	if (!kernel->info_bytes || !kernel->registers || kernel->registers > 255 || kernel->barriers > 16)
		refuse(kernels, LOAD_REASON_UNDESCRIBED);
	if (end > KERNELS_CARRIED_MAX - ADDRESS_BYTES ||
		(kernel->tail_bytes && end > OFFSETS_END - KERNELS_PARAMETERS))
		refuse(kernels, LOAD_REASON_LONG);
	attributes[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK] = most && most < fit ? most : fit;
	attributes[CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES] = (int32_t)kernel->shared;
	attributes[CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES] = (int32_t)kernels->constant_bytes;
	attributes[CU_FUNC_ATTRIBUTE_NUM_REGS] = (int32_t)kernel->registers;
	attributes[CU_FUNC_ATTRIBUTE_PTX_VERSION] = virtual;
	attributes[CU_FUNC_ATTRIBUTE_BINARY_VERSION] = KERNELS_ARCHITECTURE;
	attributes[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES] = SHARED_MAX - (int32_t)kernel->shared;
	attributes[CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT] = -1;
}

static CUresult read_all(struct kernels *kernels)
{
	uint32_t *owners = calloc(kernels->elf.count, sizeof(*owners));
	CUresult code;

	kernels->places = calloc(kernels->elf.count, sizeof(kernels->places[0]));
	kernels->has_place = calloc(kernels->elf.count, sizeof(kernels->has_place[0]));
	kernels->relocations = calloc(kernels->elf.count, sizeof(kernels->relocations[0]));
	code = owners && kernels->places && kernels->has_place && kernels->relocations
		       ? find_kernels(kernels, owners)
		       : CUDA_ERROR_OUT_OF_MEMORY;
	if (!code && !kernels->why)
		read_sections(kernels, owners);
	kernels->constant_bytes = code ? 0 : section_bytes(kernels, kernels->constants);
	if (!code && kernels->constants)
		kernels->has_place[kernels->constants] = true;
	if (!code && !kernels->why)
		check_relocations(kernels);
	if (!code && !kernels->why)
		read_codes(kernels, owners);
	free(owners);
	if (code || kernels->why)
		return code;
	find_common_tail(kernels);
	for (uint32_t i = 0; !kernels->why && i < kernels->count; i++)
		settle(kernels, &kernels->at[i],
			i ? kernels->at[0].attributes[CU_FUNC_ATTRIBUTE_PTX_VERSION]
			  : virtual_architecture(kernels));
	return sort(kernels);
}

CUresult kernels_open(struct kernels *ret, const uint8_t *cubin, size_t bytes)
{
	CUresult code;

	*ret = (struct kernels){.work = LOOKS * bytes};
	if (!elf_open(cubin, bytes, &ret->elf) || ret->elf.count > SECTIONS_MAX ||
		!elf_symbols_open(&ret->elf, &ret->symbols))
		refuse(ret, LOAD_REASON_FILE);
	else if (image_architecture(cubin) != KERNELS_ARCHITECTURE)
		refuse(ret, LOAD_REASON_ARCHITECTURE);
	code = ret->why ? CUDA_ERROR_NOT_SUPPORTED : read_all(ret);
	return !code && ret->why ? CUDA_ERROR_NOT_SUPPORTED : code;
}

void kernels_close(struct kernels *kernels)
{
	free(kernels->by_name);
	free(kernels->at);
	free(kernels->parts);
	free(kernels->places);
	free(kernels->has_place);
	free(kernels->relocations);
	*kernels = (struct kernels){0};
}

const struct kernels_kernel *kernels_find(const struct kernels *kernels, const char *name)
{
	const struct kernels_kernel wanted = {.name = name}, *key = &wanted;
	const struct kernels_kernel *const *found =
		kernels->count ? bsearch(&key, kernels->by_name, kernels->count, sizeof(key), by_name) : NULL;

	return found ? *found : NULL;
}

/* A parameter's record: index, ordinal (16 bits), offset (16 bits), and a word with the size: from
 * bit 18 on, but all of the word where a kernel has more than 4096 bytes. */
static bool is_parameter(
	const struct record *record, uint32_t *ret_ordinal, uint32_t *ret_offset, uint32_t *ret_size)
{
	bool is_long = record->attribute == INFO_PARAMETER_LONG;

	if ((record->attribute != INFO_PARAMETER && !is_long) || record->bytes != 12)
		return false;
	*ret_ordinal = word_at(record->at + 4) & 0xffff;
	*ret_offset = word_at(record->at + 4) >> 16;
	*ret_size = is_long ? word_at(record->at + 8) : word_at(record->at + 8) >> 18;
	return true;
}

/* Records are in any order. */
bool kernels_parameters(const struct kernels *kernels, const struct kernels_kernel *kernel,
	struct backend_function_info *ret_info)
{
	const uint8_t *at = kernels->elf.image + kernel->info, *end = at + kernel->info_bytes;
	uint32_t count = 0, ordinal, offset, size;
	struct record record;

	ret_info->argument_bytes = 0;
	memset(ret_info->params, 0, sizeof(ret_info->params));
	while (next_record(&at, end, &record)) {
		if (!is_parameter(&record, &ordinal, &offset, &size))
			continue;
		if (ordinal >= BACKEND_PARAMS_MAX || size > kernel->parameters ||
			offset > kernel->parameters - size)
			return false;
		ret_info->params[ordinal].offset = offset;
		ret_info->params[ordinal].size = size;
		if (offset + size > ret_info->argument_bytes)
			ret_info->argument_bytes = offset + size;
		if (ordinal >= count)
			count = ordinal + 1;
	}
	ret_info->param_count = count;
	memcpy(ret_info->attributes, kernel->attributes, sizeof(ret_info->attributes));
	ret_info->shape = kernel->shape;
	return true;
}

/* ---- placing ---- */

void kernels_fill_constants(const struct kernels *kernels, uint8_t *ret)
{
	fill(kernels, kernels->constants, ret);
}

uint64_t kernels_code_bytes(const struct kernels *kernels, const struct kernels_kernel *kernel)
{
	return elf_section(&kernels->elf, kernel->section).sh_size;
}

struct moves {
	const struct slots *slots;
	uint32_t jumps, addresses; /* where tables of jumps and addresses are in bank 0 */
	uint32_t constants;	   /* where constants begin in bank 3 */
};

/* Makes an instruction read what has moved. */
static void move_load(uint8_t *at, const struct moves *moves)
{
	const struct slots *slots = moves->slots;
	uint64_t low, offset;
	unsigned bank;

	memcpy(&low, at, sizeof(low));
	bank = bits(low, 54, 5);
	if (!is_load(low) || bank < BANK_JUMPS || bank > BANK_SLOTS)
		return;
	offset = offset_of(low);
	/* A linked function has added 0x8000 to its index, and the offset is so much less. */
	if (bank == BANK_JUMPS)
		offset += moves->jumps;
	else if (bank == BANK_CONSTANTS)
		offset += moves->constants;
	else
		offset = moves->addresses +
			 (slots->place[offset / ADDRESS_BYTES] ? carried_offset(slots, offset) : offset);
	low &= ~(UINT64_C(0x1f) << 54 | UINT64_C(0xffff) << 38);
	low |= (uint64_t)(bank == BANK_CONSTANTS ? bank : 0) << 54 | (offset & 0xffff) << 38;
	memcpy(at, &low, sizeof(low));
}

void kernels_place(const struct kernels *kernels, const struct kernels_kernel *kernel, uint8_t *ret_code,
	uint8_t *ret_tail)
{
	uint64_t bytes = kernels_code_bytes(kernels, kernel);
	struct slots slots = slots_of(kernels, kernel);
	uint32_t jumps = KERNELS_PARAMETERS + kernel->tail, own = addresses_at(kernels, kernel);
	const struct moves moves = {&slots, jumps, jumps + own, kernels->constant_offset};

	fill(kernels, kernel->section, ret_code);
	memset(ret_tail, 0, kernel->tail_bytes);
	if (kernel->jumps)
		fill(kernels, kernel->jumps, ret_tail);
	if (slots.carried)
		fill_slots(kernels, &slots, ret_tail + own);
	for (uint64_t at = 0; (kernel->tail_bytes || moves.constants) && at < bytes; at += CODE_BYTES)
		move_load(ret_code + at, &moves);
}

void kernels_fill_part(const struct kernels *kernels, const struct kernels_part *part, uint8_t *ret)
{
	static const struct slots none;
	const struct moves moves = {
		&none, KERNELS_PARAMETERS + kernels->common_tail, 0, kernels->constant_offset};

	fill(kernels, part->section, ret);
	if (part->is_code && (kernels->functions_jump || moves.constants))
		for (uint64_t at = 0; at < part->bytes; at += CODE_BYTES)
			move_load(ret + at, &moves);
}

bool kernels_variable(const struct kernels *kernels, const char *name, bool *ret_is_constant,
	uint64_t *ret_address, uint64_t *ret_bytes)
{
	for (uint64_t i = 1; i < kernels->symbols.count; i++) {
		Elf64_Sym symbol = symbol_at(kernels, i);
		const char *text;

		if (ELF64_ST_TYPE(symbol.st_info) != STT_OBJECT || symbol.st_shndx == SHN_UNDEF ||
			symbol.st_shndx >= kernels->elf.count || !kernels->has_place[symbol.st_shndx])
			continue;
		text = elf_text(&kernels->elf, &kernels->symbols.texts, symbol.st_name);
		if (!text || strcmp(text, name))
			continue;
		*ret_is_constant = symbol.st_shndx == kernels->constants;
		*ret_address = kernels->places[symbol.st_shndx] + symbol.st_value;
		*ret_bytes = symbol.st_size;
		return true;
	}
	return false;
}
