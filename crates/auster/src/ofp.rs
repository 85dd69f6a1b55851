//! `auster ofp`: OpenFlow bytes as text, from hex and from captures.

mod pcap;
mod streams;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use bytes::{Bytes, BytesMut};
use openflow::frame::Frame;
use openflow::{decode, text};
use serde_json::{Value, json};

use cli::failure::Failure;
pub(crate) use streams::Captured;
use streams::{StreamCounts, Streams};

/// The longest capture that is read; it is held in memory.
const FILE_LEN_MAX: u64 = 4 << 30;

#[derive(clap::Subcommand)]
pub enum Command {
    /// Print messages given in hex, as ovs-ofctl ofp-print does
    #[command(after_help = PRINT_EXAMPLE)]
    Print(PrintArgs),
    /// Print the messages of a capture, as ovs-ofctl ofp-parse-pcap does
    #[command(after_help = PCAP_EXAMPLE)]
    Pcap(PcapArgs),
}

const PRINT_EXAMPLE: &str = "\
Example:
  auster ofp print 0414000800000001
  OFPT_BARRIER_REQUEST (OF1.3) (xid=0x1):";

const PCAP_EXAMPLE: &str = "\
Example:
  tcpdump -i lo -w of.pcap port 6653
  auster ofp pcap of.pcap
  auster ofp pcap --json of.pcap | jq '.counts'";

#[derive(clap::Args)]
pub struct PrintArgs {
    /// One or more messages in hex, spaces allowed; `-` reads them from standard input
    #[arg(value_name = "HEX", required = true)]
    hex: Vec<String>,

    /// Add a line frame=HEX where the text is not the whole message, so that it can be read back
    #[arg(long)]
    exact: bool,
}

#[derive(clap::Args)]
pub struct PcapArgs {
    /// A classic pcap file, as tcpdump -w writes it
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// TCP ports that carry OpenFlow, at either end
    #[arg(
        long = "port", value_name = "PORT", default_values_t = [6653, 6633],
        value_delimiter = ','
    )]
    ports: Vec<u16>,

    /// Print the capture time of each message's last byte, in seconds since 1970
    #[arg(long)]
    timestamp: bool,

    /// Print one JSON document: messages, and counts of types, errors and gaps
    #[arg(long)]
    json: bool,
}

pub fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Print(args) => print(&args),
        Command::Pcap(args) => capture(&args),
    }
}

fn print(args: &PrintArgs) -> Result<(), Failure> {
    let mut undecoded = 0;
    let mut message_count = 0;
    let mut out = std::io::stdout().lock();
    each_of_hex(&args.hex, |frame| {
        message_count += 1;
        let is_decoded = decode(frame).is_ok() && frame.version().is_some();
        undecoded += u64::from(!is_decoded);
        let text = if args.exact {
            text::print_exact(frame)
        } else {
            text::print(frame)
        };
        write_line(&mut out, &text)
    })?;
    if undecoded > 0 {
        return Err(Failure::negative(format!(
            "{undecoded} of {message_count} messages did not decode: see ***decode error*** above"
        )));
    }
    Ok(())
}

/// Calls `each` with every message in `words`: hex, or `-` for standard input.
pub(crate) fn each_of_hex(
    words: &[String],
    mut each: impl FnMut(&Frame) -> Result<(), Failure>,
) -> Result<(), Failure> {
    for word in joined(words) {
        let digits = if word == "-" { standard_input()? } else { word };
        let mut bytes = BytesMut::from(&unhex(&digits)?[..]);
        while !bytes.is_empty() {
            each(&next_frame(&mut bytes)?)?;
        }
    }
    Ok(())
}

/// Joins words into runs of hex, which the shell may have split anywhere. `-` stands alone.
fn joined(words: &[String]) -> Vec<String> {
    let mut runs: Vec<String> = Vec::new();
    for word in words {
        match runs.last_mut() {
            Some(run) if run != "-" && word != "-" => run.push_str(word),
            _ => runs.push(word.clone()),
        }
    }
    runs
}

fn standard_input() -> Result<String, Failure> {
    let mut text = String::new();
    std::io::stdin()
        .read_to_string(&mut text)
        .map_err(|e| Failure::usage(format!("standard input is not hex: {e}")))?;
    Ok(text)
}

/// Parses hex digits, with white space anywhere and optionally `0x` in front.
fn unhex(text: &str) -> Result<Vec<u8>, Failure> {
    let digits: Vec<u8> = text
        .trim()
        .trim_start_matches("0x")
        .bytes()
        .filter(|byte| !byte.is_ascii_whitespace())
        .collect();
    let value = |digit: &u8| char::from(*digit).to_digit(16).map(|n| n as u8);
    if let Some(at) = digits.iter().position(|digit| value(digit).is_none()) {
        let found = String::from_utf8_lossy(&digits[at..])
            .chars()
            .next()
            .unwrap_or('?');
        return Err(Failure::usage(format!(
            "'{found}' is no hex digit (digit {}): write messages such as 0414000800000001",
            at + 1
        )));
    }
    if !digits.len().is_multiple_of(2) {
        return Err(Failure::usage(format!(
            "{} hex digits: an even number makes whole bytes, one is missing or too many",
            digits.len()
        )));
    }
    let nibble = |digit: &u8| value(digit).unwrap_or(0);
    Ok(digits
        .chunks(2)
        .map(|pair| nibble(&pair[0]) << 4 | nibble(&pair[1]))
        .collect())
}

fn next_frame(bytes: &mut BytesMut) -> Result<Frame, Failure> {
    let announced = bytes
        .get(2..4)
        .map(|len| u16::from_be_bytes([len[0], len[1]]));
    match Frame::split_from(bytes) {
        Ok(Some(frame)) => Ok(frame),
        Ok(None) => Err(Failure::usage(match announced {
            Some(len) => format!(
                "a message cut off: its header announces {len} bytes, {} are there",
                bytes.len()
            ),
            None => format!("{} bytes are no message: a header has 8", bytes.len()),
        })),
        Err(error) => Err(Failure::usage(format!("no OpenFlow message: {error}"))),
    }
}

/// The contents of a capture, counted.
#[derive(Default)]
struct Tally {
    messages: u64,
    undecoded: u64,
    /// Records that were no TCP segment of the ports asked for.
    other_packets: u64,
    types: BTreeMap<String, u64>,
    streams: StreamCounts,
    /// The reason why the file ended early.
    cut: Option<String>,
}

/// The packets of a capture, which is held in memory.
fn open(file: &Path) -> Result<pcap::Packets, Failure> {
    let unreadable = |e: std::io::Error| Failure::file(file, e);
    let size = std::fs::metadata(file).map_err(unreadable)?.len();
    if size > FILE_LEN_MAX {
        return Err(Failure::file(
            file,
            "more than 4 GiB: split it with `editcap -c 1000000`",
        ));
    }
    let bytes = std::fs::read(file).map_err(unreadable)?;
    pcap::Packets::open(Bytes::from(bytes)).map_err(|e| Failure::file(file, e.to_string()))
}

/// Calls `each` with every message of a capture.
pub(crate) fn each_of_capture(
    file: &Path,
    ports: &[u16],
    each: impl FnMut(&Captured) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let tally = follow(open(file)?, ports, each)?;
    if let Some(cut) = &tally.cut {
        let said = format!("{cut}; what came before it is printed");
        return Err(Failure::file(file, said));
    }
    if tally.messages == 0 {
        return Err(no_messages(ports, file));
    }
    Ok(())
}

fn capture(args: &PcapArgs) -> Result<(), Failure> {
    let packets = open(&args.file)?;
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let mut documents = Vec::new();
    let mut is_first = true;
    let tally = follow(packets, &args.ports, |captured| {
        if args.json {
            documents.push(document(captured));
            return Ok(());
        }
        let blank = if is_first { "" } else { "\n" };
        is_first = false;
        let time = if args.timestamp {
            seconds(captured.time) + " "
        } else {
            String::new()
        };
        let (src, dst) = (dotted(captured.src), dotted(captured.dst));
        let text = text::print(&captured.frame);
        write_line(&mut out, &format!("{blank}{time}{src} > {dst}:\n{text}"))
    })?;
    if args.json {
        let whole = json!({ "messages": documents, "counts": counts(&tally) });
        let text = serde_json::to_string_pretty(&whole).map_err(Failure::negative)?;
        write_line(&mut out, &text)?;
    }
    out.flush().map_err(cli::output::failure)?;
    verdict(&tally, args)
}

/// Calls `each` with every message of `ports`, in the order of the file.
fn follow(
    mut packets: pcap::Packets,
    ports: &[u16],
    mut each: impl FnMut(&Captured) -> Result<(), Failure>,
) -> Result<Tally, Failure> {
    let mut tally = Tally::default();
    let mut streams = Streams::default();
    while let Some(record) = packets.next_segment() {
        let segment = match record {
            Ok(Some(segment)) => segment,
            Ok(None) => {
                tally.other_packets += 1;
                continue;
            }
            Err(error) => {
                tally.cut = Some(error.to_string());
                break;
            }
        };
        if !ports.contains(&segment.src.port()) && !ports.contains(&segment.dst.port()) {
            tally.other_packets += 1;
            continue;
        }
        for captured in streams.handle_segment(&segment) {
            tally.messages += 1;
            let frame = &captured.frame;
            let is_decoded = decode(frame).is_ok() && frame.version().is_some();
            tally.undecoded += u64::from(!is_decoded);
            *tally.types.entry(type_name(&captured.frame)).or_default() += 1;
            each(&captured)?;
        }
    }
    tally.streams = streams.finish();
    Ok(tally)
}

fn type_name(frame: &Frame) -> String {
    let text = text::header(frame);
    match text.split_once(" (") {
        Some((name, _)) => name.to_owned(),
        None => text,
    }
}

fn document(captured: &Captured) -> Value {
    let frame = &captured.frame;
    let mut one = json!({
        "time": seconds(captured.time),
        "src": captured.src.to_string(),
        "dst": captured.dst.to_string(),
        "version": frame.version_byte(),
        "type": type_name(frame),
        "xid": frame.xid().0,
        "length": frame.len(),
    });
    match decode(frame) {
        Ok(_) => one["text"] = text::print(frame).into(),
        Err(error) => one["error"] = error.to_string().into(),
    }
    one
}

fn counts(tally: &Tally) -> Value {
    json!({
        "messages": tally.messages,
        "undecoded": tally.undecoded,
        "other_packets": tally.other_packets,
        "types": tally.types,
        "stream_gaps": tally.streams.gaps,
        "stream_resyncs": tally.streams.resyncs,
        "streams_forgotten": tally.streams.streams_forgotten,
        "streams_incomplete": tally.streams.incomplete,
        "file_cut": tally.cut,
    })
}

fn verdict(tally: &Tally, args: &PcapArgs) -> Result<(), Failure> {
    if let Some(cut) = &tally.cut {
        return Err(Failure::file(
            &args.file,
            format!("{cut}; what came before it is printed"),
        ));
    }
    if tally.undecoded > 0 {
        let (undecoded, messages) = (tally.undecoded, tally.messages);
        return Err(Failure::negative(format!(
            "{undecoded} of {messages} messages did not decode: see ***decode error*** above"
        )));
    }
    if tally.messages == 0 {
        return Err(no_messages(&args.ports, &args.file));
    }
    Ok(())
}

fn no_messages(ports: &[u16], file: &Path) -> Failure {
    let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
    Failure::negative(format!(
        "no OpenFlow on TCP port {} in {}: name another with --port",
        ports.join(" or "),
        file.display()
    ))
}

/// An address as tcpdump and Open vSwitch write it: `10.0.0.1.6653`.
pub(crate) fn dotted(address: SocketAddr) -> String {
    format!("{}.{}", address.ip(), address.port())
}

/// The seconds since 1970, with all the digits that a capture may have.
fn seconds(time: std::time::Duration) -> String {
    format!("{}.{:09}", time.as_secs(), time.subsec_nanos())
}

pub(crate) fn write_line(out: &mut impl Write, text: &str) -> Result<(), Failure> {
    writeln!(out, "{text}").map_err(cli::output::failure)
}
