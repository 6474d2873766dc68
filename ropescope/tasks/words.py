"""Common words for prompts: first names, and things that people like."""

_NAMES = """
Aaron Abby Abigail Abraham Ada Adam Adele Adrian Agnes Aidan Alan Albert Alex Alexander Alexandra Alfred Alice Alicia Alison
Allan Allison Alma Alvin Amanda Amber Amelia Amy Ana Andrea Andrew Andy Angela Angelo Anita Ann Anna Anne Annie Anthony
Antonio Ariel Arnold Arthur Ashley Audrey Austin Ava Barbara Barry Beatrice Becky Ben Benjamin Bernard Bert Beth Betty Beverly
Bill Billy Blake Bob Bobby Bonnie Brad Bradley Brandon Brenda Brent Brett Brian Bruce Bruno Bryan Caleb Calvin Cameron Carl
Carla Carlos Carmen Carol Caroline Carrie Carter Casey Catherine Cecil Celia Chad Charles Charlie Charlotte Chelsea Cheryl
Chester Chris Christian Christina Christine Christopher Cindy Claire Clara Clark Claude Claudia Clayton Clifford Clyde Cody
Colin Connie Connor Corey Craig Crystal Curtis Cynthia Daisy Dale Dan Dana Daniel Danny Darren Dave David Dawn Dean Debbie
Deborah Denise Dennis Derek Diana Diane Diego Dominic Don Donald Donna Dora Doris Dorothy Doug Douglas Duncan Dylan Earl Eddie
Edgar Edith Edward Edwin Eileen Elaine Eleanor Elena Eli Elias Elizabeth Ella Ellen Elliot Elsa Emily Emma Eric Erica Erik
Erin Ernest Ethan Eugene Eva Evan Eve Evelyn Faith Felix Fernando Fiona Florence Floyd Frances Francis Frank Franklin Fred
Frederick Gabriel Gail Gary Gavin Gene Geoffrey George Gerald Gilbert Gina Glen Gloria Gordon Grace Graham Grant Greg Gregory
Guy Hannah Harold Harriet Harry Harvey Hazel Heather Heidi Helen Henry Herbert Herman Holly Hope Howard Hugh Hugo Ian Ida Igor
Ingrid Irene Iris Isaac Isabel Isabella Ivan Ivy Jack Jackie Jackson Jacob Jacqueline Jake James Jamie Jan Jane Janet Janice
Jared Jasmine Jason Jay Jean Jeff Jeffrey Jenna Jennifer Jenny Jeremy Jerome Jerry Jesse Jessica Jill Jim Jimmy Joan Joanna
Joe Joel John Johnny Jon Jonathan Jordan Jorge Jose Joseph Josh Joshua Joyce Juan Juanita Judith Judy Julia Julian Julie June
Justin Karen Karl Kate Katherine Kathleen Kathy Katie Kay Keith Kelly Ken Kenneth Kerry Kevin Kim Kimberly Kurt Kyle Larry
Laura Lauren Lawrence Leah Lee Lena Leo Leon Leonard Leroy Leslie Lester Lewis Liam Lillian Lily Linda Lisa Liz Lloyd Logan
Lois Lola Lori Louis Louise Lucas Lucia Lucy Luis Luke Luna Lydia Lynn Mabel Madison Maggie Marc Marcus Margaret Maria Marian
Marie Marilyn Mario Marion Marjorie Mark Marsha Marshall Martha Martin Marvin Mary Mason Matt Matthew Maureen Maurice Max Maya
Megan Melanie Melissa Melvin Mia Michael Michelle Miguel Mike Mildred Miles Milton Miranda Miriam Mitchell Molly Monica Morgan
Morris Muriel Nancy Naomi Natalie Natasha Nathan Neil Nicholas Nick Nicole Nigel Nina Noah Nora Norma Norman Oliver Olivia
Omar Oscar Otto Owen Pablo Pamela Patricia Patrick Paul Paula Pauline Pearl Pedro Peggy Penelope Perry Pete Peter Philip
Phillip Phyllis Polly Rachel Ralph Ramon Randy Ray Raymond Rebecca Regina Rene Rex Rhonda Ricardo Richard Rick Ricky Rita
Robert Roberta Roberto Robin Rodney Roger Roland Ron Ronald Rosa Rose Rosemary Ross Roy Ruben Ruby Rudolf Russell Ruth Ryan
Sally Sam Samantha Samuel Sandra Sara Sarah Scott Sean Sebastian Seth Shane Shannon Sharon Shawn Sheila Sherry Shirley Sidney
Silvia Simon Sofia Sonia Sophia Sophie Spencer Stacy Stanley Stella Stephanie Stephen Steve Steven Stewart Stuart Sue Susan
Suzanne Sylvia Tamara Tanya Tara Ted Teresa Terry Thelma Theodore Theresa Thomas Tiffany Tim Timothy Tina Todd Tom Tommy Toni
Tony Tracy Travis Trevor Troy Tyler Ursula Valerie Vanessa Vera Vernon Veronica Vicki Victor Victoria Vincent Viola Violet
Virginia Vivian Wade Wallace Walter Wanda Warren Wayne Wendy Wesley Wilbur William Willie Winston Yolanda Yvonne Zachary Zoe
"""

_LIKED = """
red blue green black white yellow purple pink orange brown gray gold silver tea coffee milk water wine beer bread butter
cheese rice corn salt sugar honey cream meat fish soup pasta pizza salad chocolate cake fruit apples eggs nuts beans potatoes
onions tomatoes peppers mushrooms garlic lemon apple banana cherry peach grapes berries chicken beef music jazz rock opera
poetry dance drama comedy film movies radio television theater art painting drawing photography writing reading books novels
stories letters history math physics chemistry biology science philosophy politics law religion grammar languages chess cards
puzzles games toys sports football baseball basketball soccer hockey tennis golf boxing wrestling skiing swimming running
walking hiking climbing fishing hunting sailing cycling yoga dogs cats horses cows pigs sheep birds ducks bees ants spiders
snakes frogs mice rabbits bears wolves lions elephants monkeys whales tigers foxes deer eagles turtles sharks dolphins insects
trees flowers roses grass leaves forests gardens mountains hills rivers lakes beaches islands deserts caves clouds rain snow
ice wind storms thunder fire sunshine stars space planets summer winter spring autumn gardening cooking baking sleeping
dancing singing shopping travel trains ships boats planes cars trucks bikes bridges towers castles houses windows doors chairs
tables lamps candles clocks mirrors maps flags coins stamps diamonds jewelry shoes hats boots coats gloves silk wool cotton
leather wood stone glass paper iron steel clay sand guitar piano violin drums trumpet songs computers robots phones cameras
engines machines numbers circles triangles magic ghosts dragons pirates knights kings parties weddings jokes bottles bells
oceans valleys villages farms cities streets markets museums pictures statues poems plays plants seeds rocks fog light dreams
secrets silence peace freedom money nature
"""

NAMES, LIKED = _NAMES.split(), _LIKED.split()
