// See trampoline_image.h. The file has the form of ptxas of CUDA 13, down to the notes, without
// which a driver refuses the file (580): the sections of the module, and four for each kernel, its
// attributes, code, shared memory and parameters. The attributes are explained in kernels.c.

#include "server/backend/trampoline_image.h"

#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MACHINE_CUDA  190
#define OSABI	      0x41
#define ABI	      8
#define FLAGS	      0x6005a04u /* for 9.0 */
#define OTHER_ENTRY   0x10
#define TYPE_INFO     0x70000000u
#define TYPE_CALLS    0x70000001u
#define TYPE_COMPAT   0x70000086u
#define PARAMETERS_AT 0x210u
#define CODE_BYTES    128u
#define SHARED_BYTES  0x400u /* of the driver */

/* Sections in front of those of kernels. */
enum { NONE, SECTION_NAMES, NAMES, SYMBOLS, INFO, TOOL_NOTE, CUDA_NOTE, COMPAT, CALLS, FIRST };

struct buffer {
	uint8_t *at;
	size_t count, room;
	bool is_full; /* there was no memory */
};

static size_t add(struct buffer *buffer, const void *bytes, size_t count)
{
	size_t at = buffer->count;

	if (buffer->room - at < count && !buffer->is_full) {
		size_t room = 2 * (at + count) + 4096;
		uint8_t *grown = realloc(buffer->at, room);

		buffer->is_full = !grown;
		buffer->at = grown ? grown : buffer->at;
		buffer->room = grown ? room : buffer->room;
	}
	if (buffer->is_full)
		return at;
	if (bytes)
		memcpy(buffer->at + at, bytes, count);
	else
		memset(buffer->at + at, 0, count);
	buffer->count += count;
	return at;
}

static void align(struct buffer *buffer, size_t to)
{
	add(buffer, NULL, -buffer->count % to);
}

static void add_text(struct buffer *buffer, const char *text)
{
	add(buffer, text, strlen(text) + 1);
}

void trampoline_name(const struct trampoline_class *class, char ret_name[TRAMPOLINE_NAME_BYTES])
{
	snprintf(ret_name, TRAMPOLINE_NAME_BYTES, "frmps_%u_%u_%u", class->registers, class->barriers,
		class->carried);
}

/* ---- the file, as it grows ---- */

struct image {
	const struct trampoline_form *form;
	struct buffer file, section_names, names, symbols, headers, segments;
	uint32_t sections, symbol_count;
	uint32_t first_function; /* symbol */
	size_t segments_at;
};

static uint32_t of_kernel(const struct image *image, uint32_t block, uint32_t kernel)
{
	return FIRST + block * image->form->count + kernel;
}

/* Places of the kernels' sections: four blocks, and the constants at the end. */
static uint32_t code_of(const struct image *image, uint32_t kernel)
{
	return of_kernel(image, 1, kernel);
}

static uint32_t parameters_of(const struct image *image, uint32_t kernel)
{
	return of_kernel(image, 3, kernel);
}

static uint32_t bank_of(const struct image *image)
{
	return of_kernel(image, 4, 0);
}

struct section {
	const char *stem, *name; /* the name has two parts; either may be NULL */
	uint32_t type, flags, link, info, align, entry;
	const void *bytes; /* NULL: zeros */
	size_t count;
};

static void add_section(struct image *image, const struct section *section)
{
	Elf64_Shdr header = {.sh_name = (Elf64_Word)image->section_names.count,
		.sh_type = section->type,
		.sh_flags = section->flags,
		.sh_size = section->count,
		.sh_link = section->link,
		.sh_info = section->info,
		.sh_addralign = section->align,
		.sh_entsize = section->entry};

	if (section->stem)
		add(&image->section_names, section->stem, strlen(section->stem));
	add_text(&image->section_names, section->name ? section->name : "");
	align(&image->file, section->align ? section->align : 1);
	header.sh_offset = section->type == SHT_NULL ? 0 : image->file.count;
	if (section->type != SHT_NOBITS)
		add(&image->file, section->bytes, section->count);
	add(&image->headers, &header, sizeof(header));
	image->sections++;
}

static void add_symbol(struct image *image, const char *name, unsigned info, unsigned other, uint32_t section,
	uint64_t bytes)
{
	Elf64_Sym symbol = {.st_name = name ? (Elf64_Word)image->names.count : 0,
		.st_info = (unsigned char)info,
		.st_other = (unsigned char)other,
		.st_shndx = (Elf64_Section)section,
		.st_size = bytes};

	if (name)
		add_text(&image->names, name);
	add(&image->symbols, &symbol, sizeof(symbol));
	image->symbol_count++;
}

static void add_symbols(struct image *image)
{
	const struct trampoline_form *form = image->form;
	char name[TRAMPOLINE_NAME_BYTES];

	add_text(&image->names, "");
	add_symbol(image, NULL, 0, 0, 0, 0);
	for (uint32_t i = 0; i < form->count; i++)
		add_symbol(image, NULL, ELF64_ST_INFO(STB_LOCAL, STT_SECTION), 0, code_of(image, i), 0);
	for (uint32_t i = 0; i < form->count; i++)
		add_symbol(image, NULL, ELF64_ST_INFO(STB_LOCAL, STT_SECTION), 0, parameters_of(image, i), 0);
	if (form->has_bank)
		add_symbol(image, NULL, ELF64_ST_INFO(STB_LOCAL, STT_SECTION), 0, bank_of(image), 0);
	image->first_function = image->symbol_count;
	for (uint32_t i = 0; i < form->count; i++) {
		trampoline_name(&form->classes[i], name);
		add_symbol(image, name, ELF64_ST_INFO(STB_GLOBAL, STT_FUNC), OTHER_ENTRY, code_of(image, i),
			CODE_BYTES);
	}
	if (form->has_bank)
		add_symbol(image, TRAMPOLINE_BANK, ELF64_ST_INFO(STB_GLOBAL, STT_OBJECT), 0, bank_of(image),
			TRAMPOLINE_BANK_BYTES);
}

/* ---- attributes ---- */

static void add_words(struct buffer *buffer, const uint32_t *words, size_t count)
{
	add(buffer, words, count * sizeof(words[0]));
}

/* A record of so many words. */
static uint32_t sized(uint32_t attribute, uint32_t words)
{
	return words * 4 << 16 | attribute << 8 | 4;
}

static uint32_t value(uint32_t format, uint32_t attribute, uint32_t value)
{
	return value << 16 | attribute << 8 | format;
}

/* Registers, frame and stack of all. */
static void add_info(struct image *image)
{
	struct buffer info = {0};

	for (uint32_t i = 0; i < image->form->count; i++) {
		uint32_t symbol = image->first_function + i;
		const uint32_t words[] = {sized(0x2f, 2), symbol, image->form->classes[i].registers,
			sized(0x11, 2), symbol, image->form->local, sized(0x12, 2), symbol,
			image->form->local};

		add_words(&info, words, sizeof(words) / sizeof(words[0]));
	}
	image->file.is_full |= info.is_full;
	add_section(image, &(struct section){.name = ".nv.info",
				   .type = TYPE_INFO,
				   .link = SYMBOLS,
				   .align = 4,
				   .bytes = info.at,
				   .count = info.count});
	free(info.at);
}

static void add_parameter_info(struct buffer *info, uint32_t carried)
{
	for (uint32_t i = 0, at = 0; at < carried; i++) {
		uint32_t left = carried - at,
			 bytes = left < TRAMPOLINE_PARAMETER_BYTES ? left : TRAMPOLINE_PARAMETER_BYTES;
		const uint32_t words[] = {sized(0x17, 3), 0, at << 16 | i, 0x1f000 | bytes << 18};

		add(info, words, sizeof(words));
		at += bytes;
	}
}

static void add_kernel_info(struct image *image, uint32_t kernel)
{
	const struct trampoline_class *class = &image->form->classes[kernel];
	uint32_t parameters = 1 + image->form->count + kernel; /* symbol of its section */
	char name[TRAMPOLINE_NAME_BYTES];
	struct buffer info = {0};
	const uint32_t before[] = {sized(0x37, 1), 0x82 /* of CUDA 13.0 */},
		       behind[] = {value(3, 0x50, 0), value(3, 0x1b, 0xff), value(2, 0x4c, class->barriers),
			       value(3, 0x5f, 0x101), sized(0x1c, 1), 0x20, value(3, 0x19, class->carried),
			       sized(0x0a, 2), parameters, class->carried << 16 | PARAMETERS_AT,
			       sized(0x36, 1), 8};

	add(&info, before, sizeof(before));
	add_parameter_info(&info, class->carried);
	add(&info, behind, sizeof(behind));
	trampoline_name(class, name);
	image->file.is_full |= info.is_full;
	add_section(image, &(struct section){.stem = ".nv.info.",
				   .name = name,
				   .type = TYPE_INFO,
				   .flags = SHF_INFO_LINK,
				   .link = SYMBOLS,
				   .info = code_of(image, kernel),
				   .align = 4,
				   .bytes = info.at,
				   .count = info.count});
	free(info.at);
}

/* ---- code ---- */

static void add_code(struct image *image, uint32_t kernel)
{
	const struct trampoline_class *class = &image->form->classes[kernel];
	static const uint64_t nop[2] = {UINT64_C(0x7918), UINT64_C(0x000fc00000000000)};
	const uint64_t jump[] = {/* LDC.64 R2, c[0][…] */
		(uint64_t)(PARAMETERS_AT + class->carried - 8) << 38 | UINT64_C(0xff027b82),
		UINT64_C(0x000e300000000a00),
		/* CALL.ABS.NOINC R2, once that is there */
		UINT64_C(0x0000000002007343), UINT64_C(0x003fea0003c00000),
		/* EXIT; BRA to itself */
		UINT64_C(0x000000000000794d), UINT64_C(0x000fea0003800000), UINT64_C(0xfffffffc00fc7947),
		UINT64_C(0x000fc0000383ffff)};
	char name[TRAMPOLINE_NAME_BYTES];
	struct buffer code = {0};

	add(&code, jump, sizeof(jump));
	while (code.count < CODE_BYTES && !code.is_full)
		add(&code, nop, sizeof(nop));
	image->file.is_full |= code.is_full;
	trampoline_name(class, name);
	add_section(image, &(struct section){.stem = ".text.",
				   .name = name,
				   .type = SHT_PROGBITS,
				   .flags = SHF_ALLOC | SHF_EXECINSTR,
				   .link = SYMBOLS,
				   .info = image->first_function + kernel,
				   .align = CODE_BYTES,
				   .bytes = code.at,
				   .count = CODE_BYTES});
	free(code.at);
}

static void add_shared(struct image *image, uint32_t kernel)
{
	char name[TRAMPOLINE_NAME_BYTES];

	trampoline_name(&image->form->classes[kernel], name);
	add_section(image, &(struct section){.stem = ".nv.shared.",
				   .name = name,
				   .type = SHT_NOBITS,
				   .flags = SHF_ALLOC | SHF_WRITE | SHF_INFO_LINK,
				   .info = code_of(image, kernel),
				   .align = 16,
				   .count = SHARED_BYTES});
}

static void add_parameters(struct image *image, uint32_t kernel)
{
	const struct trampoline_class *class = &image->form->classes[kernel];
	char name[TRAMPOLINE_NAME_BYTES];

	trampoline_name(class, name);
	add_section(image, &(struct section){.stem = ".nv.constant0.",
				   .name = name,
				   .type = SHT_PROGBITS,
				   .flags = SHF_ALLOC | SHF_INFO_LINK,
				   .info = code_of(image, kernel),
				   .align = 4,
				   .count = PARAMETERS_AT + class->carried});
}

static void add_kernels(struct image *image)
{
	uint32_t count = image->form->count;

	for (uint32_t i = 0; i < count; i++)
		add_kernel_info(image, i);
	for (uint32_t i = 0; i < count; i++)
		add_code(image, i);
	for (uint32_t i = 0; i < count; i++)
		add_shared(image, i);
	for (uint32_t i = 0; i < count; i++)
		add_parameters(image, i);
	if (image->form->has_bank)
		add_section(image, &(struct section){.name = ".nv.constant3",
					   .type = SHT_PROGBITS,
					   .flags = SHF_ALLOC,
					   .align = 256,
					   .count = TRAMPOLINE_BANK_BYTES});
}

/* ---- notes ---- */

static void add_note(struct image *image, const char *name, uint32_t flags, uint32_t link, uint32_t info,
	uint32_t type, const void *bytes, uint32_t count)
{
	static const char owner[12] = "NVIDIA Corp";
	const uint32_t head[] = {sizeof(owner), count, type};
	struct buffer note = {0};

	add(&note, head, sizeof(head));
	add(&note, owner, sizeof(owner));
	add(&note, bytes, count);
	image->file.is_full |= note.is_full;
	add_section(image, &(struct section){.name = name,
				   .type = SHT_NOTE,
				   .flags = flags,
				   .link = link,
				   .info = info,
				   .align = 4,
				   .bytes = note.at,
				   .count = note.count});
	free(note.at);
}

static void add_notes(struct image *image)
{
	/* Version 2; where the names of tool, version, build and options are in the text behind. */
	static const struct {
		uint32_t words[6];
		char text[8];
	} tool = {{2, 0, 1, 6, 6, 6}, "\0frmps\0"};
	/* Version 2; for virtual devices 9.0; of CUDA 13.0. */
	static const uint16_t cuda[] = {2, 90, 130, 0};
	/* Records as in .nv.info: the output of ptxas 13.0 for a plain kernel. */
	static const uint8_t compat[] = {2, 9, 0, 0, 2, 2, 1, 0, 2, 5, 5, 0, 3, 7, 1, 1, 2, 3, 0, 0, 2, 6, 1,
		0, 4, 11, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0};
	/* Nobody calls anybody. */
	static const uint32_t calls[] = {
		0, UINT32_MAX, 0, UINT32_MAX - 1, 0, UINT32_MAX - 2, 0, UINT32_MAX - 3};

	add_note(image, ".note.nv.tkinfo", 0x2000000, 0, 0, 2000, &tool, sizeof(tool));
	add_note(image, ".note.nv.cuinfo", 0x1000000 | SHF_INFO_LINK, TOOL_NOTE, COMPAT, 1000, cuda,
		sizeof(cuda));
	add_section(image, &(struct section){.name = ".nv.compat",
				   .type = TYPE_COMPAT,
				   .align = 4,
				   .bytes = compat,
				   .count = sizeof(compat)});
	add_section(image, &(struct section){.name = ".nv.callgraph",
				   .type = TYPE_CALLS,
				   .link = SYMBOLS,
				   .align = 4,
				   .entry = 8,
				   .bytes = calls,
				   .count = sizeof(calls)});
}

/* ---- the whole ---- */

static Elf64_Shdr header_of(const struct image *image, uint32_t section)
{
	Elf64_Shdr header;

	memcpy(&header, image->headers.at + section * sizeof(header), sizeof(header));
	return header;
}

/* A piece of the file that is loaded: `count` consecutive sections. */
static void add_segment(struct image *image, uint32_t first, uint32_t count, uint32_t flags)
{
	Elf64_Shdr from = header_of(image, first), to = header_of(image, first + count - 1);
	bool is_file = from.sh_type != SHT_NOBITS;
	uint64_t bytes = is_file ? to.sh_offset + to.sh_size - from.sh_offset : 0;
	Elf64_Phdr segment = {.p_type = PT_LOAD,
		.p_flags = flags,
		.p_offset = from.sh_offset,
		.p_filesz = bytes,
		.p_memsz = is_file ? bytes : from.sh_size,
		.p_align = 8};

	add(&image->segments, &segment, sizeof(segment));
}

/* The table of segments describes itself, twice. */
static void add_segments(struct image *image)
{
	uint32_t count = image->form->count;
	Elf64_Phdr table;

	align(&image->file, 8);
	table = (Elf64_Phdr){.p_type = PT_PHDR, .p_flags = PF_R, .p_offset = image->file.count, .p_align = 8};
	table.p_filesz = table.p_memsz = (5 + image->form->has_bank) * sizeof(table);
	add(&image->segments, &table, sizeof(table));
	table.p_type = PT_LOAD;
	add(&image->segments, &table, sizeof(table));
	add_segment(image, code_of(image, 0), count, PF_R | PF_X);
	add_segment(image, of_kernel(image, 2, 0), count, PF_R | PF_W);
	add_segment(image, parameters_of(image, 0), count, PF_R);
	if (image->form->has_bank)
		add_segment(image, bank_of(image), 1, PF_R);
	image->segments_at = add(&image->file, image->segments.at, image->segments.count);
}

/* Adds the names of sections: they are complete after all other sections, so this section comes
 * last, and its header, which was the first, gets their place. */
static void add_section_names(struct image *image)
{
	Elf64_Shdr header = header_of(image, SECTION_NAMES);

	header.sh_offset = image->file.count;
	header.sh_size = image->section_names.count;
	add(&image->file, image->section_names.at, image->section_names.count);
	memcpy(image->headers.at + SECTION_NAMES * sizeof(header), &header, sizeof(header));
}

static void make(struct image *image)
{
	Elf64_Ehdr head = {.e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB,
				   EV_CURRENT, OSABI, ABI},
		.e_type = ET_EXEC,
		.e_machine = MACHINE_CUDA,
		.e_version = EV_CURRENT,
		.e_flags = FLAGS,
		.e_ehsize = sizeof(Elf64_Ehdr),
		.e_phentsize = sizeof(Elf64_Phdr),
		.e_phnum = (Elf64_Half)(5 + image->form->has_bank),
		.e_shentsize = sizeof(Elf64_Shdr),
		.e_shstrndx = SECTION_NAMES};

	add(&image->file, NULL, sizeof(head));
	add_symbols(image);
	add_section(image, &(struct section){.type = SHT_NULL});
	add_section(image, &(struct section){.name = ".shstrtab", .type = SHT_STRTAB, .align = 1});
	add_section(image, &(struct section){.name = ".strtab",
				   .type = SHT_STRTAB,
				   .align = 1,
				   .bytes = image->names.at,
				   .count = image->names.count});
	add_section(image, &(struct section){.name = ".symtab",
				   .type = SHT_SYMTAB,
				   .link = NAMES,
				   .info = image->first_function,
				   .align = 8,
				   .entry = sizeof(Elf64_Sym),
				   .bytes = image->symbols.at,
				   .count = image->symbols.count});
	add_info(image);
	add_notes(image);
	add_kernels(image);
	if (image->headers.is_full)
		return;
	add_segments(image);
	add_section_names(image);
	align(&image->file, 8);
	head.e_shnum = (Elf64_Half)image->sections;
	head.e_shoff = add(&image->file, image->headers.at, image->headers.count);
	if (image->file.is_full)
		return;
	head.e_phoff = image->segments_at;
	memcpy(image->file.at, &head, sizeof(head));
}

uint8_t *trampoline_image(const struct trampoline_form *form, size_t *ret_bytes)
{
	struct image image = {.form = form};
	bool is_whole;

	make(&image);
	is_whole = !image.file.is_full && !image.section_names.is_full && !image.names.is_full &&
		   !image.symbols.is_full && !image.headers.is_full && !image.segments.is_full;
	free(image.section_names.at);
	free(image.names.at);
	free(image.symbols.at);
	free(image.headers.at);
	free(image.segments.at);
	*ret_bytes = image.file.count;
	if (is_whole)
		return image.file.at;
	free(image.file.at);
	return NULL;
}
